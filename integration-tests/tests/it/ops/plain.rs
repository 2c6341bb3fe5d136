//! Connections of the tool that leave this machine without TLS that is verified.
use super::doctor::{findings, those};
use crate::support::{logged::Lines, stores::World, tool::Tool};
use sqlx::{PgPool, Postgres};
use twinbox::Store;
use twinbox_testkit::servers::NatsServer;

/// The system reads `0x7f000001` as a loopback address. The programs take it for a name, as of another
/// machine.
fn away(url: &str) -> String {
    let plain = url.split('?').next().unwrap();
    let away = plain.replace("127.0.0.1", "0x7f000001");
    assert_ne!(away, url);
    away
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_connection_to_another_machine_needs_an_option_and_is_a_warning() {
    let (world, server) = (World::<Postgres>::new().await, NatsServer::start().unwrap());
    let plain = world.url().split('?').next().unwrap();
    let ran = Tool::at::<Postgres>(plain).run(&["doctor", "-o", "json"]).await;
    let here = [("ok".to_owned(), "it stays on this machine".to_owned())];
    assert_eq!(findings(&ran, "connection"), here);

    let (tool, nats) = (Tool::at::<Postgres>(&away(world.url())), away(&server.url()));
    let refused = tool.ends(2, &["status"]).await;
    let fix = "write `sslmode=verify-full` into its URL, or use --allow-plain";
    assert!(refused.contains("`0x7f000001`") && refused.contains(fix), "{refused}");
    let doctor = ["doctor", "-o", "json", "--allow-plain", "--nats-stream", "EVENTS", "--nats-url", &nats];
    let ran = tool.run(&doctor).await;
    let found = findings(&ran, "connection");
    assert!(those(&found, "warning")[0].contains("the host `0x7f000001`: `allow_plain`"), "{found:?}");
    assert!(findings(&ran, "connection to NATS").is_empty(), "{ran:?}");
    let stream = findings(&ran, "stream EVENTS");
    assert!(those(&stream, "wrong")[0].contains("NATS"), "the server has no TLS: {stream:?}");

    let ran = tool.run(&[&doctor[..], &["--nats-allow-plain"]].concat()).await;
    let found = findings(&ran, "connection to NATS");
    assert!(those(&found, "warning")[0].contains("the host `0x7f000001`: `allow_plain`"), "{found:?}");
    assert!(!format!("{:?}", findings(&ran, "stream EVENTS")).contains("cannot be reached"), "{ran:?}");
}

/// An application chooses its pool, so its store can only warn.
#[tokio::test]
async fn a_store_logs_once_that_its_connections_leave_the_machine_without_tls() {
    let world = World::<Postgres>::new().await;
    let pool = PgPool::connect(&away(world.url())).await.unwrap();
    let store = Store::new(pool, world.service()).unwrap();
    let (lines, _recording) = Lines::record();
    for _ in 0..2 {
        store.check().await.unwrap();
    }
    let warned = lines.saying("no verified TLS protects the connection to the host `0x7f000001`");
    assert_eq!(warned.len(), 1, "{warned:?}");
}
