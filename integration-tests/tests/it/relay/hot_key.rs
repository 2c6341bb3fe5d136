//! One hot key: its messages follow each other without waiting, and keep their order whatever dies.
use crate::support::relay::Rig;
use twinbox_testkit::servers::NatsServer;

const MESSAGES: u32 = 100_000;
/// Of the relay and of the server, in turns.
const DEATHS: u32 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_keeps_its_order_while_relay_and_server_are_killed() {
    let mut server = NatsServer::start().unwrap();
    let rig = Rig::at(&server.url(), &["orders.placed"]).await;
    let insert = "INSERT INTO twinbox.outbox (type, key, payload)
        SELECT 'orders.placed', 'hot', convert_to(repeat('x', 300), 'UTF8') FROM generate_series(1, $1)";
    sqlx::query(insert).bind(i64::from(MESSAGES)).execute(rig.database.pool()).await.unwrap();
    let mut relay = rig.start();
    for death in 1..=DEATHS {
        let share = u64::from(MESSAGES / (DEATHS + 1) * death);
        rig.target.holds(share, async_nats::ConnectOptions::new()).await;
        if death % 2 == 0 {
            server.kill().unwrap();
            server.restart().unwrap();
        } else {
            relay.kill().await.unwrap();
            relay = rig.start();
        }
    }
    // The first copies are in order.
    let copies = rig.target.whole(MESSAGES as usize).await;
    assert!(copies.len() > MESSAGES as usize, "nothing was under way when they died");
    relay.kill().await.unwrap();
}
