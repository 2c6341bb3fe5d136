//! A TCP proxy that loses answers, goes silent and changes its mind about where it leads.
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// A proxy on loopback in front of one server. Dropped, it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    fault: Mutex<Option<Vec<u8>>>,
    /// Connections are numbered; those below this are silent.
    silent_below: watch::Sender<u64>,
    /// Those below this are cut.
    cut_below: watch::Sender<u64>,
    connections: AtomicU64,
}

/// Bytes that are passed on at a time.
const CHUNK: usize = 64 * 1024;

impl Proxy {
    /// Listens on a free port of loopback and passes everything on to `upstream`.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            fault: Mutex::default(),
            silent_below: watch::Sender::new(0),
            cut_below: watch::Sender::new(0),
            connections: AtomicU64::new(0),
        });
        let mut accepting = JoinSet::new();
        let serving = shared.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let shared = serving.clone();
                let number = shared.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(async move {
                    let mut cut = shared.cut_below.subscribe();
                    tokio::select! {
                        _ = shared.connect(client, number) => {}
                        _ = cut.wait_for(|below| number < *below) => {}
                    }
                });
            }
        });
        Ok(Self { address, shared, _accepting: accepting })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that clients have opened so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Cuts the next connection on which a client sends `bytes`, after the server has answered and before the
    /// client gets to know. One write of the client has to hold all of `bytes`.
    pub fn lose_answer_to(&self, bytes: impl Into<Vec<u8>>) {
        *self.shared.fault.lock().expect("no holder panics") = Some(bytes.into());
    }

    /// Whether that has happened.
    pub fn has_lost(&self) -> bool {
        self.shared.fault.lock().expect("no holder panics").is_none()
    }

    /// Cuts every connection, and each new one as soon as it is made, until [`restore`](Self::restore).
    pub fn cut(&self) {
        self.shared.cut_below.send_replace(u64::MAX);
    }

    /// Lets clients through again.
    pub fn restore(&self) {
        self.shared.cut_below.send_replace(0);
    }

    /// Passes nothing on any more, in either direction, and closes nothing; new connections too.
    pub fn freeze(&self) {
        self.shared.silent_below.send_replace(u64::MAX);
    }

    /// The same for the connections of now; new ones work.
    pub fn freeze_open(&self) {
        self.shared.silent_below.send_replace(self.connections());
    }

    /// Passes on again, and what was held back first.
    pub fn thaw(&self) {
        self.shared.silent_below.send_replace(0);
    }

    /// Cuts every connection, and leads new ones to another server.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().expect("no holder panics") = upstream;
        self.shared.cut_below.send_replace(self.connections());
    }
}

impl Shared {
    async fn connect(&self, client: TcpStream, number: u64) -> io::Result<()> {
        let upstream = *self.upstream.lock().expect("no holder panics");
        self.heard(number).await;
        self.relay(client, TcpStream::connect(upstream).await?, number).await
    }

    /// Waits while the connection is silent.
    async fn heard(&self, number: u64) {
        let _ = self.silent_below.subscribe().wait_for(|below| number >= *below).await;
    }

    async fn relay(&self, mut client: TcpStream, mut server: TcpStream, number: u64) -> io::Result<()> {
        let (mut up, mut down) = (vec![0; CHUNK], vec![0; CHUNK]);
        loop {
            tokio::select! {
                read = client.read(&mut up) => {
                    let n = read?;
                    self.heard(number).await;
                    if n == 0 {
                        return Ok(());
                    }
                    server.write_all(&up[..n]).await?;
                    if self.takes(&up[..n]) {
                        // The server's answer is its word that it has done what was asked.
                        let _ = server.read(&mut down).await?;
                        return Ok(());
                    }
                }
                read = server.read(&mut down) => {
                    let n = read?;
                    self.heard(number).await;
                    if n == 0 {
                        return Ok(());
                    }
                    client.write_all(&down[..n]).await?;
                }
            }
        }
    }

    fn takes(&self, chunk: &[u8]) -> bool {
        let mut armed = self.fault.lock().expect("no holder panics");
        let hit =
            armed.as_ref().is_some_and(|bytes| chunk.windows(bytes.len()).any(|window| window == bytes));
        if hit {
            *armed = None;
        }
        hit
    }
}
