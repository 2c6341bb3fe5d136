//! One connection to one server.
use super::{
    frame::{self, Frame},
    login, tls,
};
use crate::{
    connect::{TLS_FAILED, tls_failure},
    error::{Error, ErrorKind},
    options::NatsOptions,
};
use async_nats::{ServerAddr, ServerInfo};
use bytes::BytesMut;
use serde::Serialize;
use std::{io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Free bytes of the buffer before each read.
const READ_BYTES: usize = 64 * 1024;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(super) struct Link {
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    /// The facts that the server last sent about itself.
    pub(super) info: ServerInfo,
    /// How long a write may take.
    write_limit: Duration,
}

#[derive(Serialize)]
struct Connect<'a> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    name: &'a str,
    lang: &'a str,
    version: &'a str,
    protocol: u8,
    echo: bool,
    headers: bool,
    no_responders: bool,
    #[serde(flatten)]
    login: login::Login,
}

impl Link {
    /// Connects and logs in. `options` hold what their files held a moment ago.
    pub(super) async fn open(server: &ServerAddr, options: &NatsOptions) -> Result<Self, Error> {
        let (mut tcp, mut buffer) = (connect(server).await.map_err(unreachable)?, BytesMut::new());
        let info = match read_frame(&mut tcp, &mut buffer).await.map_err(unreachable)? {
            Frame::Info(info) => read_info(&info).map_err(unreachable)?,
            _ => return Err(unreachable(io::Error::other("the server does not begin with INFO"))),
        };
        let is_tls = info.tls_required || server.tls_required() || options.need_tls()?;
        let stream: Box<dyn Stream> = if is_tls {
            // Anybody could have sent the bytes before TLS.
            buffer.clear();
            let secured = tls::secured(tcp, server.host(), options).await;
            let failed =
                |e: io::Error| unavailable("nats.tls", tls_failure(&e).unwrap_or(TLS_FAILED)).with_source(e);
            Box::new(secured.map_err(failed)?)
        } else {
            Box::new(tcp)
        };
        let login = login::login(options, &info.nonce).await?;
        let mut link = Self { stream, buffer, info, write_limit: options.request_timeout };
        link.log_in(is_tls, login).await?;
        Ok(link)
    }

    async fn log_in(&mut self, tls_required: bool, login: login::Login) -> Result<(), Error> {
        let connect = Connect {
            verbose: false,
            pedantic: false,
            tls_required,
            name: "twinbox deliveries",
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            echo: false,
            headers: true,
            no_responders: true,
            login,
        };
        let connect = serde_json::to_string(&connect).map_err(|e| unreachable(e.into()))?;
        self.write(format!("CONNECT {connect}\r\nPING\r\n").as_bytes()).await.map_err(unreachable)?;
        loop {
            match self.read().await.map_err(unreachable)? {
                Frame::Pong => return Ok(()),
                Frame::Error(text) => {
                    let refused = "NATS does not accept the credentials";
                    return Err(unavailable("nats.authorization", refused).with_source(text));
                }
                _ => {}
            }
        }
    }

    /// Waits for the next frame. Cancel safe.
    pub(super) async fn read(&mut self) -> io::Result<Frame> {
        read_frame(&mut self.stream, &mut self.buffer).await
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(self.write_limit, written).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

async fn connect(server: &ServerAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect((server.host(), server.port())).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<Frame> {
    loop {
        if let Some(frame) = frame::take(buffer).map_err(io::Error::other)? {
            return Ok(frame);
        }
        buffer.reserve(READ_BYTES);
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

pub(super) fn read_info(json: &[u8]) -> io::Result<ServerInfo> {
    Ok(serde_json::from_slice(json)?)
}

fn unavailable(code: &str, text: &str) -> Error {
    Error::new(ErrorKind::Unavailable, code, text)
}

fn unreachable(error: io::Error) -> Error {
    unavailable("nats.io", "NATS cannot be reached").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::rustls::crypto::ring;
    use tokio::{join, net::TcpListener};

    const GREETING: &[u8] = b"INFO {\"server_id\":\"x\",\"version\":\"2.15.1\",\"proto\":1,\
        \"max_payload\":1048576,\"headers\":true,\"auth_required\":true}\r\n";

    /// Greets one connection as a server without TLS. Returns what comes.
    async fn greet(listener: &TcpListener) -> Vec<u8> {
        let mut connection = listener.accept().await.unwrap().0;
        connection.write_all(GREETING).await.unwrap();
        let mut came = vec![0; READ_BYTES];
        let length = connection.read(&mut came).await.unwrap();
        // The other side may have hung up.
        let _ = connection.write_all(b"-ERR 'Unknown Protocol Operation'\r\n").await;
        came.truncate(length);
        came
    }

    /// The system reads `0x7f000001` as a loopback address. Here it is a name, as of another machine.
    #[tokio::test]
    async fn a_login_leaves_the_machine_over_tls_alone() {
        let _ = ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("nats://me:very-secret@0x7f000001:{port}");
        let (server, options) = (url.parse().unwrap(), NatsOptions::new(url));
        let (opened, came) = join!(Link::open(&server, &options), greet(&listener));
        let error = opened.err().unwrap();
        assert_eq!((error.code(), came[0]), ("nats.tls", 22), "TLS begins with a record of type 22");
        assert!(error.to_string().contains("does not speak it"), "{error}");

        let options = options.allow_plain(true);
        let (opened, came) = join!(Link::open(&server, &options), greet(&listener));
        assert_eq!(opened.err().unwrap().code(), "nats.authorization");
        assert!(String::from_utf8(came).unwrap().contains("very-secret"));
    }
}
