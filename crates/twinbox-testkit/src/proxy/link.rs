//! A link with a latency and a bandwidth. More bytes can be sent before the first ones arrive.
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

/// Bytes that the link reads at a time.
const CHUNK: usize = 16 * 1024;
/// Chunks that are on the link at most.
const CHUNKS_MAX: usize = 4096;

/// A link between clients and server. All connections share its bandwidth.
#[derive(Debug)]
pub(super) struct Link {
    latency: Duration,
    /// Bytes per second, in each direction.
    rate: Option<f64>,
    /// The time at which each direction has sent its last byte.
    free_at: [Mutex<Instant>; 2],
}

impl Link {
    pub(super) fn new(latency: Duration, bits_per_second: Option<u64>) -> Self {
        let free_at = [(); 2].map(|()| Mutex::new(Instant::now()));
        Self { latency, rate: bits_per_second.map(|bits| bits as f64 / 8.0), free_at }
    }

    /// Returns when bytes arrive that are sent now.
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
        let (sent, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
        let sending = async {
            loop {
                let mut chunk = vec![0; CHUNK];
                let n = from.read(&mut chunk).await?;
                chunk.truncate(n);
                let at = self.arrival(direction, n);
                if n == 0 || sent.send((at, chunk)).await.is_err() {
                    return Ok(());
                }
                // The sender keeps the bytes for which the link has no bandwidth yet.
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
