//! A TCP proxy that delays, freezes, cuts and redirects connections.
mod link;

use link::Link;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// A proxy on loopback in front of one server. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

/// The sender of the bytes that a proxy passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client sends the bytes.
    Client,
    /// The server sends the bytes.
    Server,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    /// The proxy cuts the connection that sends these bytes.
    fault: Mutex<Option<Vec<u8>>>,
    /// Connections have numbers. Those below this one are frozen.
    frozen_below: watch::Sender<u64>,
    /// Those below this one are cut.
    cut_below: watch::Sender<u64>,
    connections: AtomicU64,
    delay: Mutex<Duration>,
    link: Mutex<Option<Arc<Link>>>,
    dropped: Mutex<Option<Side>>,
    dropped_bytes: AtomicU64,
    /// Bytes that the proxy still passes on from the server.
    allowance: Mutex<Option<usize>>,
}

/// Bytes that the proxy reads at a time.
const CHUNK: usize = 64 * 1024;

impl Proxy {
    /// Starts a proxy on a free port of loopback, in front of `upstream`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            fault: Mutex::default(),
            frozen_below: watch::Sender::new(0),
            cut_below: watch::Sender::new(0),
            connections: AtomicU64::new(0),
            delay: Mutex::default(),
            link: Mutex::default(),
            dropped: Mutex::default(),
            dropped_bytes: AtomicU64::new(0),
            allowance: Mutex::default(),
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

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections that clients have opened so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Cuts the next connection on which a client sends `bytes`: the server responds, and the client gets no
    /// response.
    ///
    /// One write of the client must contain all of `bytes`.
    pub fn lose_answer_to(&self, bytes: impl Into<Vec<u8>>) {
        *self.shared.fault.lock().expect("no holder panics") = Some(bytes.into());
    }

    /// Returns whether [`lose_answer_to`](Self::lose_answer_to) has cut a connection.
    pub fn has_lost(&self) -> bool {
        self.shared.fault.lock().expect("no holder panics").is_none()
    }

    /// Cuts every connection, and each new one at once, until [`restore`](Self::restore).
    pub fn cut(&self) {
        self.shared.cut_below.send_replace(u64::MAX);
    }

    /// Accepts connections again after [`cut`](Self::cut).
    pub fn restore(&self) {
        self.shared.cut_below.send_replace(0);
    }

    /// Freezes every connection, and each new one, until [`thaw`](Self::thaw).
    ///
    /// A frozen connection stays open and passes on no byte, in either direction.
    pub fn freeze(&self) {
        self.shared.frozen_below.send_replace(u64::MAX);
    }

    /// Freezes every open connection, until [`thaw`](Self::thaw). New ones work.
    pub fn freeze_open(&self) {
        self.shared.frozen_below.send_replace(self.connections());
    }

    /// Continues frozen connections. No byte is lost.
    pub fn thaw(&self) {
        self.shared.frozen_below.send_replace(0);
    }

    /// Delays each chunk of bytes, in either direction. Zero ends the delay.
    pub fn delay(&self, delay: Duration) {
        *self.shared.delay.lock().expect("no holder panics") = delay;
    }

    /// Leads new connections over one shared link with this latency and this bandwidth, in each direction.
    ///
    /// Of the other faults only [`cut`](Self::cut) affects these connections.
    pub fn lead_over(&self, latency: Duration, bits_per_second: Option<u64>) {
        let link = Arc::new(Link::new(latency, bits_per_second));
        *self.shared.link.lock().expect("no holder panics") = Some(link);
    }

    /// Drops all bytes that `sender` sends, on every connection. `None` ends this.
    ///
    /// The dropped bytes do not arrive later. So [`cut`](Self::cut) the connections before `None`, unless the
    /// protocol tolerates the loss.
    pub fn drop_what_comes_from(&self, sender: Option<Side>) {
        *self.shared.dropped.lock().expect("no holder panics") = sender;
    }

    /// Passes on this many more bytes from the server, then cuts the connection of the next byte, once.
    ///
    /// All connections count together. The cut can be in the middle of a response.
    pub fn cut_after(&self, bytes: usize) {
        *self.shared.allowance.lock().expect("no holder panics") = Some(bytes);
    }

    /// Cuts every connection and leads new ones to another server.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().expect("no holder panics") = upstream;
        self.shared.cut_below.send_replace(self.connections());
    }
}

impl Shared {
    async fn connect(&self, client: TcpStream, number: u64) -> io::Result<()> {
        let upstream = *self.upstream.lock().expect("no holder panics");
        self.thawed(number).await;
        let link = self.link.lock().expect("no holder panics").clone();
        let server = TcpStream::connect(upstream).await?;
        match link {
            Some(link) => link.relay(client, server).await,
            None => self.relay(client, server, number).await,
        }
    }

    /// Waits while the connection is frozen.
    async fn thawed(&self, number: u64) {
        let _ = self.frozen_below.subscribe().wait_for(|below| number >= *below).await;
    }

    async fn relay(&self, mut client: TcpStream, mut server: TcpStream, number: u64) -> io::Result<()> {
        let (mut up, mut down) = (vec![0; CHUNK], vec![0; CHUNK]);
        loop {
            tokio::select! {
                read = client.read(&mut up) => {
                    let n = read?;
                    self.thawed(number).await;
                    if n == 0 {
                        return Ok(());
                    }
                    if self.keeps(Side::Client, n).await {
                        server.write_all(&up[..n]).await?;
                    }
                    if self.is_hit(&up[..n]) {
                        // The response shows that the server has done the work.
                        let _ = server.read(&mut down).await?;
                        return Ok(());
                    }
                }
                read = server.read(&mut down) => {
                    let n = read?;
                    self.thawed(number).await;
                    if n == 0 {
                        return Ok(());
                    }
                    let (n, continues) = self.allows(n);
                    if self.keeps(Side::Server, n).await {
                        client.write_all(&down[..n]).await?;
                    }
                    if !continues {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits for the delay. Returns whether the bytes of this sender are passed on.
    async fn keeps(&self, sender: Side, bytes: usize) -> bool {
        let delay = *self.delay.lock().expect("no holder panics");
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let keeps = *self.dropped.lock().expect("no holder panics") != Some(sender);
        if !keeps {
            self.dropped_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        keeps
    }

    /// Returns how many of these bytes are passed on, and whether the connection continues.
    fn allows(&self, bytes: usize) -> (usize, bool) {
        let mut allowance = self.allowance.lock().expect("no holder panics");
        match *allowance {
            Some(left) if bytes > left => {
                *allowance = None;
                (left, false)
            }
            left => {
                *allowance = left.map(|left| left - bytes);
                (bytes, true)
            }
        }
    }

    /// Returns whether the client has sent the bytes whose response is to be lost.
    fn is_hit(&self, chunk: &[u8]) -> bool {
        let mut armed = self.fault.lock().expect("no holder panics");
        let hit =
            armed.as_ref().is_some_and(|bytes| chunk.windows(bytes.len()).any(|window| window == bytes));
        if hit {
            *armed = None;
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Starts a server that sends every four bytes back twice.
    async fn proxied() -> (Proxy, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut bytes = [0; 4];
                    while client.read_exact(&mut bytes).await.is_ok() {
                        client.write_all(&[bytes, bytes].concat()).await.unwrap();
                    }
                });
            }
        });
        let proxy = Proxy::start(address).await.unwrap();
        let client = TcpStream::connect(proxy.address()).await.unwrap();
        (proxy, client)
    }

    async fn ask(client: &mut TcpStream) -> String {
        client.write_all(b"ping").await.unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn each_piece_is_held_back() {
        let (proxy, mut client) = proxied().await;
        let delay = Duration::from_millis(100);
        proxy.delay(delay);
        let asked = Instant::now();
        assert_eq!(ask(&mut client).await, "pingping");
        assert!(asked.elapsed() >= 2 * delay);
    }

    #[tokio::test]
    async fn one_direction_is_dropped() {
        let (proxy, mut client) = proxied().await;
        for (sender, dropped) in [(Side::Client, 4), (Side::Server, 4 + 8)] {
            proxy.drop_what_comes_from(Some(sender));
            client.write_all(b"lost").await.unwrap();
            let all = async {
                while proxy.shared.dropped_bytes.load(Ordering::Relaxed) < dropped {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), all).await.expect("the proxy drops the bytes");
        }
        proxy.drop_what_comes_from(None);
        assert_eq!(ask(&mut client).await, "pingping", "these are the first bytes that arrive");
    }

    #[tokio::test]
    async fn an_answer_is_cut_in_its_middle() {
        let (proxy, mut client) = proxied().await;
        proxy.cut_after(11);
        assert_eq!(ask(&mut client).await, "pingping");
        client.write_all(b"ping").await.unwrap();
        let mut rest = Vec::new();
        let cut = tokio::time::timeout(Duration::from_secs(30), client.read_to_end(&mut rest)).await;
        assert!(cut.is_ok(), "it goes on");
        assert_eq!(rest, b"pin");
        let mut next = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut next).await, "pingping");
    }
}
