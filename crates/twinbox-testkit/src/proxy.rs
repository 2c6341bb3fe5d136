//! A TCP proxy that loses answers, goes silent and changes its mind about where it leads.
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

/// A proxy on loopback in front of one server. Dropped, it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

/// Whose bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What clients ask.
    Client,
    /// What the server answers.
    Server,
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
    delay: Mutex<Duration>,
    link: Mutex<Option<Arc<Link>>>,
    dropped: Mutex<Option<Side>>,
    /// Bytes that may still come from the server.
    allowance: Mutex<Option<usize>>,
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
            delay: Mutex::default(),
            link: Mutex::default(),
            dropped: Mutex::default(),
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

    /// Holds back each piece of what is sent, in either direction, for that long. Zero: no longer.
    pub fn delay(&self, delay: Duration) {
        *self.shared.delay.lock().expect("no holder panics") = delay;
    }

    /// New connections share a way on which each byte takes so long, in either direction, and which takes no more than so
    /// many bits a second. Other faults than [`cut`](Self::cut) do not happen on them.
    pub fn lead_over(&self, latency: Duration, bits_per_second: Option<u64>) {
        let link = Arc::new(Link::new(latency, bits_per_second));
        *self.shared.link.lock().expect("no holder panics") = Some(link);
    }

    /// Throws away what one side sends, on every connection, while the other side goes on. What is thrown away does
    /// not come again: [`cut`](Self::cut) before it ends with None, unless the protocol can do without it.
    pub fn drop_what_comes_from(&self, sender: Option<Side>) {
        *self.shared.dropped.lock().expect("no holder panics") = sender;
    }

    /// Lets that many more bytes of the server's answers through, of all connections together, and cuts the
    /// connection that has the next one, in the middle of an answer if need be. Once.
    pub fn cut_after(&self, bytes: usize) {
        *self.shared.allowance.lock().expect("no holder panics") = Some(bytes);
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
        let link = self.link.lock().expect("no holder panics").clone();
        let server = TcpStream::connect(upstream).await?;
        match link {
            Some(link) => link.relay(client, server).await,
            None => self.relay(client, server, number).await,
        }
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
                    if self.keeps(Side::Client).await {
                        server.write_all(&up[..n]).await?;
                    }
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
                    let (n, goes_on) = self.allows(n);
                    if self.keeps(Side::Server).await {
                        client.write_all(&down[..n]).await?;
                    }
                    if !goes_on {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Whether what this side sent is passed on, when it is time to.
    async fn keeps(&self, sender: Side) -> bool {
        let delay = *self.delay.lock().expect("no holder panics");
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        *self.dropped.lock().expect("no holder panics") != Some(sender)
    }

    /// How many of so many bytes come through, and whether the connection goes on.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A server that says everything twice.
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
        for sender in [Side::Client, Side::Server] {
            proxy.drop_what_comes_from(Some(sender));
            client.write_all(b"lost").await.unwrap();
            let nothing = tokio::time::timeout(Duration::from_millis(300), client.read_u8()).await;
            assert!(nothing.is_err(), "{sender:?}: {nothing:?}");
        }
        proxy.drop_what_comes_from(None);
        assert_eq!(ask(&mut client).await, "pingping");
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
