//! A proxy before Postgres that counts how often a client asks and waits for the answer.
use super::postgres::{at_proxy, postgres_address, store_at};
use sqlx::Postgres;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use twinbox::Store;

/// The version of the protocol, in the last message of a client without a type.
const PROTOCOL: [u8; 4] = [0, 3, 0, 0];
/// A client waits for an answer after one of these: a simple query, and the end of an extended one.
const ASKS: [u8; 2] = [b'Q', b'S'];

/// The round trips of one store.
pub(crate) struct RoundTrips {
    pub(crate) store: Store<Postgres>,
    /// Where the round trips of other processes are counted.
    pub(crate) url: String,
    count: Arc<AtomicU64>,
    _accepting: JoinSet<()>,
}

impl RoundTrips {
    /// Opens a store at this URL whose round trips are counted.
    pub(crate) async fn of(url: &str) -> Self {
        let (listener, server) = (TcpListener::bind(("127.0.0.1", 0)).await.unwrap(), postgres_address(url));
        let address = listener.local_addr().unwrap();
        let (count, mut accepting) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        let counter = count.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, counter) = (TcpStream::connect(server).await.unwrap(), counter.clone());
                connections.spawn(async move { pass_on(client, server, &counter).await });
            }
        });
        let url = at_proxy(url, address);
        Self { store: store_at(&url).await, url, count, _accepting: accepting }
    }

    /// The number of round trips so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }
}

async fn pass_on(client: TcpStream, server: TcpStream, count: &AtomicU64) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((client, mut to_client), (mut server, mut to_server)) = (client.into_split(), server.into_split());
    let mut client = BufReader::new(client);
    let answers = async { tokio::io::copy(&mut server, &mut to_client).await.map(drop) };
    let questions = async {
        let (mut has_begun, mut message) = (false, Vec::new());
        loop {
            message.clear();
            if has_begun {
                message.push(client.read_u8().await?);
            }
            let length = client.read_u32().await?;
            message.extend(length.to_be_bytes());
            let body = message.len();
            message.resize(body + length as usize - size_of::<u32>(), 0);
            client.read_exact(&mut message[body..]).await?;
            if has_begun && ASKS.contains(&message[0]) {
                count.fetch_add(1, SeqCst);
            }
            has_begun |= message[body..].starts_with(&PROTOCOL);
            to_server.write_all(&message).await?;
        }
    };
    tokio::select! {
        ended = answers => ended,
        ended = questions => ended,
    }
}
