//! A TCP proxy that loses answers, or everything.
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Stands between a client and a server on loopback. Dropped, it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    fault: Arc<Mutex<Option<Vec<u8>>>>,
    cut: watch::Sender<bool>,
    _accepting: JoinSet<()>,
}

/// Bytes that are moved at a time.
const CHUNK: usize = 64 * 1024;

impl Proxy {
    /// Listens on a free port of loopback and connects each client to `upstream`.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let fault = Arc::new(Mutex::new(None));
        let mut accepting = JoinSet::new();
        let (cut, is_cut) = watch::channel(false);
        let armed = fault.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (armed, mut is_cut) = (armed.clone(), is_cut.clone());
                connections.spawn(async move {
                    let relayed = async {
                        let server = TcpStream::connect(upstream).await?;
                        relay(client, server, &armed).await
                    };
                    tokio::select! {
                        biased;
                        _ = is_cut.wait_for(|cut| *cut) => {}
                        _ = relayed => {}
                    }
                });
            }
        });
        Ok(Self { address, fault, cut, _accepting: accepting })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection, and each new one as soon as it is made, until [`restore`](Self::restore).
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Lets clients through again.
    pub fn restore(&self) {
        self.cut.send_replace(false);
    }

    /// The next connection whose client sends `bytes` within one chunk: the server gets them, and then both
    /// sides are cut before the server's answer reaches the client. Once.
    pub fn lose_answer_to(&self, bytes: impl Into<Vec<u8>>) {
        *self.fault.lock().expect("no holder panics") = Some(bytes.into());
    }
}

async fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    armed: &Mutex<Option<Vec<u8>>>,
) -> io::Result<()> {
    let (mut up, mut down) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let n = read?;
                if n == 0 {
                    return Ok(());
                }
                server.write_all(&up[..n]).await?;
                if takes(armed, &up[..n]) {
                    // The server's answer is its word that it has done what was asked.
                    let _ = server.read(&mut down).await?;
                    return Ok(());
                }
            }
            read = server.read(&mut down) => {
                let n = read?;
                if n == 0 {
                    return Ok(());
                }
                client.write_all(&down[..n]).await?;
            }
        }
    }
}

fn takes(armed: &Mutex<Option<Vec<u8>>>, chunk: &[u8]) -> bool {
    let mut armed = armed.lock().expect("no holder panics");
    let hit = armed.as_ref().is_some_and(|bytes| chunk.windows(bytes.len()).any(|window| window == bytes));
    if hit {
        *armed = None;
    }
    hit
}
