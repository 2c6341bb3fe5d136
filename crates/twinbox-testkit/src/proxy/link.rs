//! A long or narrow way: what is sent arrives later and no faster, and in between more can be sent.
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    time::Instant,
};

/// Bytes that are passed on at a time.
const CHUNK: usize = 16 * 1024;
/// Pieces that are on their way at most.
const ON_THE_WAY_MAX: usize = 4096;

/// The way between client and server, which all connections share.
#[derive(Debug)]
pub(super) struct Link {
    latency: Duration,
    /// Bytes a second, in each direction.
    rate: Option<f64>,
    /// When each direction is free.
    free_at: [Mutex<Instant>; 2],
}

impl Link {
    pub(super) fn new(latency: Duration, bits_per_second: Option<u64>) -> Self {
        let free_at = [(); 2].map(|()| Mutex::new(Instant::now()));
        Self { latency, rate: bits_per_second.map(|bits| bits as f64 / 8.0), free_at }
    }

    /// When so many bytes arrive that are sent now.
    fn arrival(&self, direction: usize, bytes: usize) -> Instant {
        let mut free_at = self.free_at[direction].lock().expect("no holder panics");
        let begun = (*free_at).max(Instant::now());
        *free_at =
            begun + self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bytes as f64 / rate));
        *free_at + self.latency
    }

    pub(super) async fn relay(self: Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::select! {
            ended = self.pass(0, from_client, to_server) => ended,
            ended = self.pass(1, from_server, to_client) => ended,
        }
    }

    async fn pass(
        &self,
        direction: usize,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (sent, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY_MAX);
        let sending = async {
            loop {
                let mut chunk = vec![0; CHUNK];
                let n = from.read(&mut chunk).await?;
                chunk.truncate(n);
                let at = self.arrival(direction, n);
                if n == 0 || sent.send((at, chunk)).await.is_err() {
                    return Ok(());
                }
                // What the way has no room for stays with the sender.
                tokio::time::sleep_until(at - self.latency).await;
            }
        };
        let arrived = async {
            while let Some((at, chunk)) = arriving.recv().await {
                tokio::time::sleep_until(at).await;
                to.write_all(&chunk).await?;
            }
            Ok(())
        };
        tokio::select! {
            ended = sending => ended,
            ended = arrived => ended,
        }
    }
}
