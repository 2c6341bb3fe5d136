//! One hot key: its messages follow each other without waiting, and keep their order whatever dies.
use crate::support::{
    long,
    rig::{RIG_PUBLISH_TIMEOUT, Rig},
};
use twinbox_testkit::servers::NatsServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_keeps_its_order_while_relay_and_server_are_killed() {
    // Relay and server die in turns.
    let (messages, deaths) = long::or((100_000_u32, 8_u32), (40_000, 4));
    let mut server = NatsServer::start().unwrap();
    let rig = Rig::at(&server.url(), &["orders.placed"]).await;
    let insert = "INSERT INTO twinbox.outbox (type, key, payload)
        SELECT 'orders.placed', 'hot', convert_to(repeat('x', 300), 'UTF8') FROM generate_series(1, $1)";
    sqlx::query(insert).bind(i64::from(messages)).execute(rig.database.pool()).await.unwrap();
    // After a death of the server each message under way is waited for as long.
    let start = || rig.command().env(RIG_PUBLISH_TIMEOUT, "2s").spawn().unwrap();
    let mut relay = start();
    for death in 1..=deaths {
        let share = u64::from(messages / (deaths + 1) * death);
        rig.target.holds(share, async_nats::ConnectOptions::new()).await;
        if death % 2 == 0 {
            server.kill().unwrap();
            server.restart().unwrap();
        } else {
            rig.kill(&mut relay).await;
            relay = start();
        }
    }
    // The first copies are in order.
    let copies = rig.target.whole(messages as usize).await;
    assert!(copies.len() > messages as usize, "nothing was under way when they died");
    relay.kill().await.unwrap();
}
