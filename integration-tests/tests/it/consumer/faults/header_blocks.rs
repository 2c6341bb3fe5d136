//! Messages whose header block no client can read. Whoever may publish can store one.
use super::broker::{CONSUMER, in_order, note, running, send};
use crate::support::{
    broker_users::host_of,
    relay::Target,
    stores::{World, placed},
    wait::{eventually, in_time},
};
use sqlx::Postgres;
use std::time::Instant;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use twinbox::{
    Consumer,
    nats::{Nats, StreamOptions},
};

use twinbox_testkit::servers::NatsServer;

const BLOCKS: [&[u8]; 14] = [
    b"NATS/1.0\r\nce-id: a\rb\r\n\r\n",
    b"NATS/1.0\r\na line without a colon\r\n\r\n",
    b"NATS/1.0\r\nce-id: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\n\xc3\xa9: 1\r\n\r\n",
    b"NATS/1.0\r\na name: 1\r\n\r\n",
    b"NATS/1.0\r\nce-id: a\r\n\rb: c\r\n\r\n",
    b"NATS/1.0 x\r\n\r\n",
    b"NATS/1.0 409 Consumer Deleted\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/2.0\r\na: b\r\n\r\n",
    b"HTTP/1.1 200 OK",
    b"\0\0\0\0",
    b"\r\n\r\n",
];

/// Sends to NATS what the client library refuses to send.
struct RawClient(TcpStream);

impl RawClient {
    async fn connect(url: &str) -> Self {
        let mut client = Self(TcpStream::connect(host_of(url)).await.unwrap());
        client.0.write_all(b"CONNECT {\"verbose\":false,\"headers\":true}\r\n").await.unwrap();
        client.arrived().await;
        client
    }

    async fn publish(&mut self, subject: &str, block: &[u8], payload: &str) {
        let sizes = format!("HPUB {subject} {} {}\r\n", block.len(), block.len() + payload.len());
        let parts: [&[u8]; 4] = [sizes.as_bytes(), block, payload.as_bytes(), b"\r\n"];
        self.0.write_all(&parts.concat()).await.unwrap();
        self.arrived().await;
    }

    /// Waits until the server has taken everything.
    async fn arrived(&mut self) {
        self.0.write_all(b"PING\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"PONG\r\n") {
            assert_ne!(in_time(self.0.read_buf(&mut answer)).await.unwrap(), 0, "the server hung up");
        }
    }
}

/// Each is followed by a good message. No connection is lost over it: nothing is delivered twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_block_that_cannot_be_read_stops_nobody() {
    let (world, server) = (World::<Postgres>::new().await, NatsServer::start().unwrap());
    // It lets in who says nothing of TLS.
    let target = Target::at(server.url());
    let nats = Nats::with_options(target.existing().partitions(1)).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let subject = format!("{}.0.orders.placed", target.prefix());
    let mut raw = RawClient::connect(&target.url).await;
    let consumer = Consumer::new((*world).clone(), ()).transport(nats.clone());
    let (stop, consuming) = running(consumer.handler::<note>().handler::<in_order>());
    let mut effects = Vec::new();
    for (n, block) in (0..).zip(BLOCKS) {
        raw.publish(&subject, block, &format!("payload {n}")).await;
        let sent = Instant::now();
        send(&nats, &[&placed(n)]).await;
        effects.extend([n, 2000 + n]);
        effects.sort_unstable();
        eventually(async || (world.effects().await == effects).then_some(())).await;
        println!("{:?} behind {:?}", sent.elapsed(), block.escape_ascii().to_string());
    }
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(target.deliveries(CONSUMER).await, 2 * BLOCKS.len() as u64);
    for consumer in [CONSUMER, "tests.in_order"] {
        let mut dead_letters = world.inbox(consumer).dead_letters(100).await.unwrap();
        dead_letters.sort_by_key(|dead_letter| dead_letter.message.time);
        assert_eq!(dead_letters.len(), BLOCKS.len());
        for (n, (dead_letter, block)) in dead_letters.iter().zip(BLOCKS).enumerate() {
            assert_eq!(dead_letter.message.payload, format!("payload {n}").as_bytes());
            if let Some(kept) = dead_letter.message.header("twinbox-header-block") {
                assert_eq!(kept, block.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
            }
        }
        let kept = dead_letters.iter().filter(|d| d.message.header("twinbox-header-block").is_some());
        assert_eq!(kept.count(), 10, "the others could be read, and hold no event");
    }
}
