//! A small HTTP/1.1 server that can send wrong responses.
//!
//! A library cannot send them: it closes no connection without a response, and sends no half of a head.
use serde_json::{Value, json};
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
pub(super) struct Call {
    /// The header `X-Amz-Target`, such as `AWSEvents.PutEvents`.
    pub(super) target: String,
    pub(super) signed: bool,
    pub(super) body: Vec<u8>,
}

/// The way in which a response is sent.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Manner {
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

pub(super) struct Reply {
    status: u16,
    headers: String,
    body: String,
    manner: Manner,
}

impl Reply {
    pub(super) fn ok(body: &Value) -> Self {
        Self::empty(200).body(body.to_string())
    }

    pub(super) fn error(status: u16, code: &str) -> Self {
        Self::empty(status).body(json!({"__type": code, "message": "as the test says"}).to_string())
    }

    pub(super) fn empty(status: u16) -> Self {
        Self { status, headers: String::new(), body: String::new(), manner: Manner::Whole }
    }

    pub(super) fn body(self, body: impl Into<String>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(super) fn header(self, name: &str, value: &dyn Display) -> Self {
        Self { headers: format!("{}{name}: {value}\r\n", self.headers), ..self }
    }

    pub(super) fn sent(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    fn head(&self) -> String {
        format!(
            "HTTP/1.1 {} .\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: {}\r\n{}\r\n",
            self.status,
            self.body.len(),
            self.headers
        )
    }
}

/// A server on loopback. Dropping it closes all connections.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _accepting: JoinSet<()>,
}

impl Server {
    /// Starts a server on a free port of loopback.
    pub(super) async fn start<A, F>(answer: A) -> io::Result<Self>
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

    pub(super) fn url(&self) -> String {
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
    let mut call = Call { target: String::new(), signed: false, body: Vec::new() };
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if head.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "x-amz-target" => call.target = value.to_owned(),
            "authorization" => call.signed = value.starts_with("AWS4-HMAC-SHA256 "),
            "content-length" => length = value.parse().map_err(io::Error::other)?,
            _ => {}
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(io::Error::other("the body is too long"));
    }
    call.body.resize(length, 0);
    client.read_exact(&mut call.body).await?;
    Ok(Some(call))
}
