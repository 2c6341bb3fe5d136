//! One connection to one server.
use super::{
    frame::{self, Frame},
    login, tls,
};
use crate::{
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
        let is_tls = info.tls_required || server.tls_required();
        let stream: Box<dyn Stream> = if is_tls {
            let secured = tls::secured(tcp, server.host(), options).await;
            Box::new(secured.map_err(|e| unavailable("nats.tls", "TLS with NATS failed").with_source(e))?)
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
