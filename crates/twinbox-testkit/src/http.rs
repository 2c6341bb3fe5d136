//! A small HTTP/1.1 server that can send wrong responses.
//!
//! A library cannot send them: it closes no connection without a response, and sends no half of a head.
use serde_json::Value;
#[cfg(feature = "aws")]
use serde_json::json;
use std::{fmt::Display, io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Bytes of the head of a request.
const HEAD_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of a body. An event of 1 MiB grows when it is a JSON text within JSON.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pause between two bytes of a response that comes byte by byte.
const DRIP: Duration = Duration::from_millis(20);

/// A call of a service.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    /// With names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Call {
    /// The value of a header, by its name in lower case. Empty: there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

/// The way in which a response is sent.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Manner {
    Whole,
    /// The connection closes after half of the body.
    Half,
    /// Byte by byte, without an end.
    Drip,
    /// The connection closes without a response.
    Cut,
    /// No byte, until the client leaves.
    Never,
}

pub(crate) struct Reply {
    status: u16,
    headers: String,
    body: String,
    manner: Manner,
}

impl Reply {
    pub(crate) fn ok(body: &Value) -> Self {
        Self::empty(200).body(body.to_string())
    }

    #[cfg(feature = "aws")]
    pub(crate) fn error(status: u16, code: &str) -> Self {
        Self::empty(status).body(json!({"__type": code, "message": "as the test says"}).to_string())
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: String::new(), body: String::new(), manner: Manner::Whole }
    }

    pub(crate) fn body(self, body: impl Into<String>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(crate) fn header(self, name: &str, value: &dyn Display) -> Self {
        Self { headers: format!("{}{name}: {value}\r\n", self.headers), ..self }
    }

    pub(crate) fn sent(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    fn head(&self) -> String {
        format!(
            "HTTP/1.1 {} .\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n",
            self.status,
            self.body.len(),
            self.headers
        )
    }
}

/// A server on loopback. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _accepting: JoinSet<()>,
}

impl Server {
    /// Starts a server on a free port of loopback.
    pub(crate) async fn start<A, F>(answer: A) -> io::Result<Self>
    where
        A: Fn(Call) -> F + Clone + Send + 'static,
        F: Future<Output = Reply> + Send,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut _accepting = JoinSet::new();
        _accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let answer = answer.clone();
                connections.spawn(async move {
                    let _ = serve(client, answer).await;
                });
            }
        });
        Ok(Self { address, _accepting })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Serves one call after another, until the client leaves or a response ends the connection.
async fn serve<F: Future<Output = Reply>>(client: TcpStream, answer: impl Fn(Call) -> F) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = BufReader::new(client);
    while let Some(call) = read(&mut client).await? {
        let reply = answer(call).await;
        let (head, body) = (reply.head(), reply.body.as_bytes());
        match reply.manner {
            Manner::Whole => client.write_all(&[head.as_bytes(), body].concat()).await?,
            Manner::Half => {
                client.write_all(&[head.as_bytes(), &body[..body.len() / 2]].concat()).await?;
                return client.shutdown().await;
            }
            Manner::Drip => {
                for byte in head.bytes().chain(std::iter::repeat(b' ')) {
                    client.write_all(&[byte]).await?;
                    tokio::time::sleep(DRIP).await;
                }
            }
            Manner::Cut => return Ok(()),
            Manner::Never => {
                client.read_u8().await?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads one call. Returns `None` if the client has left.
async fn read(client: &mut BufReader<TcpStream>) -> io::Result<Option<Call>> {
    let mut head = client.take(HEAD_BYTES_MAX);
    let mut call = Call { method: String::new(), path: String::new(), headers: Vec::new(), body: Vec::new() };
    let mut line = String::new();
    loop {
        line.clear();
        if head.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        if call.method.is_empty() {
            let mut parts = text.split(' ').map(str::to_owned);
            (call.method, call.path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        } else if let Some((name, value)) = text.split_once(':') {
            call.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length = match call.header("content-length") {
        "" => 0,
        length => length.parse().map_err(io::Error::other)?,
    };
    if length > BODY_BYTES_MAX {
        return Err(io::Error::other("the body is too long"));
    }
    call.body.resize(length, 0);
    client.read_exact(&mut call.body).await?;
    Ok(Some(call))
}
