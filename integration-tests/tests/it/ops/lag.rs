//! `consumers lag`: each kind of consumer, behind by a known number and then by none.
use super::{
    doctor::findings,
    shop::{self, Deployed, Deployment},
};
use crate::support::{
    book::Book,
    broker_users::{inbox_of, nats_url_for},
    consumer::publish,
    relay::{Running, Target},
    stores::{Placed, TestDb, World, effect},
    tool::{Ran, Tool},
    wait::{eventually, in_time},
};
use async_nats::jetstream::consumer::PullConsumer;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use sqlx::Sqlite;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};
use twinbox::{Consumer, Delivery, Dialect, HandlerResult, Tx, aws::Sqs, event_handler, nats::NatsOptions};
use twinbox_testkit::{aws::FakeSqs, park_deliveries, servers::NatsServer};
use uuid::Uuid;

#[event_handler(consumer = "tests.in_order", order = "key")]
pub(super) async fn in_order<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.any_order")]
pub(super) async fn any_order<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

/// A database and a stream of a relay.
pub(super) struct Rig<DB: TestDb> {
    pub(super) world: World<DB>,
    pub(super) target: Target,
    relay: Option<Running>,
    pub(super) tool: Tool,
}

impl<DB: TestDb> Rig<DB> {
    async fn new() -> Self {
        Self::at(Target::shared()).await
    }

    pub(super) async fn at(target: Target) -> Self {
        let world = World::<DB>::new().await;
        let (relay, tool) = (Some(Running::start(&*world, &target)), Tool::of(&world));
        Self { world, target, relay, tool }
    }

    pub(super) fn consumer(&self) -> Consumer<DB, ()> {
        Consumer::new((*self.world).clone(), ()).transport(self.target.destination())
    }

    pub(super) async fn publish(&self, numbers: std::ops::Range<i64>) {
        let all = u64::try_from(numbers.end).unwrap();
        publish(&self.world, numbers).await;
        self.relay.as_ref().unwrap().published(all).await;
    }

    pub(super) async fn stop_relay(&mut self) {
        self.relay.take().unwrap().stop().await;
    }

    pub(super) async fn handled(&self, count: usize) {
        eventually(async || (self.world.effects().await.len() == count).then_some(())).await;
    }

    /// Runs the command with the server of the stream.
    async fn ran(&self, arguments: &[&str]) -> Ran {
        self.with_server(&[&["consumers", "lag"], arguments].concat()).await
    }

    async fn with_server(&self, arguments: &[&str]) -> Ran {
        let (mut command, url) = (self.tool.command(arguments), nats_url_for("operator", &self.target.url));
        command.args(["--nats-inbox-prefix", &inbox_of(&url)]).env("NATS_URL", url);
        let ran = in_time(command.output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
    }

    async fn lag(&self) -> Value {
        only(&self.ran(&["-o", "json"]).await)
    }

    /// Waits until the consumer is behind by this number.
    async fn is_behind(&self, messages: u64) -> Value {
        eventually(async || Some(self.lag().await).filter(|lag| lag["behind"] == messages)).await
    }

    /// The same for one of several consumers.
    pub(super) async fn is_behind_as(&self, consumer: &str, messages: u64) {
        let is_behind = async || only(&self.ran(&[consumer, "-o", "json"]).await)["behind"] == messages;
        eventually(async || is_behind().await.then_some(())).await;
    }

    /// The consumers that the server has for readers of this stream.
    async fn readers(&self) -> Vec<String> {
        let stream = self.target.jetstream().await.get_stream(&self.target.name).await.unwrap();
        stream.consumer_names().try_collect().await.unwrap()
    }
}

/// The one record that was printed.
fn only(ran: &Ran) -> Value {
    let records: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let [record] = &records.as_array().unwrap()[..] else { panic!("{ran:?}") };
    record.clone()
}

async fn without_a_broker(tool: &Tool) -> Value {
    only(&tool.run(&["consumers", "lag", "-o", "json"]).await)
}

async fn a_consumer_of_the_log_is_behind_by_what_it_has_not_settled<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    let tool = Tool::of(&world);
    assert!(tool.ok(&["consumers", "lag"]).await.contains("No consumer has ever run"));
    shop::publish(&world, 0..5).await;
    let running = Deployed::start(shop::consumer(&world, &deployed));
    eventually(async || (world.effects().await.len() == 5).then_some(())).await;
    running.stop().await;
    shop::publish(&world, 5..12).await;
    let lag = without_a_broker(&tool).await;
    let of = ["consumer", "reads", "behind", "parked", "dead_letters"].map(|name| lag[name].clone());
    let expected: [Value; 5] = ["billing.invoice".into(), "log".into(), 7.into(), 0.into(), 0.into()];
    assert_eq!(of, expected, "{lag}");
    assert!(lag["oldest_seconds"].as_f64() < lag["last_claim_seconds"].as_f64(), "{lag}");
    assert_eq!((&lag["oldest_parked_seconds"], &lag["unknown_because"]), (&Value::Null, &Value::Null));

    // Dead letters, and a delivery that is parked.
    deployed.rejects.store(true, SeqCst);
    let running = Deployed::start(shop::consumer(&world, &deployed));
    eventually(async || (world.rows("dead_letters").await == 7).then_some(())).await;
    running.stop().await;
    let leases = world.partition_leases("billing.invoice");
    leases.create(1, &["orders.placed".to_owned()]).await.unwrap();
    let lease = Duration::from_secs(60);
    let (fence, _) = leases.take(0, Uuid::now_v7(), lease).await.unwrap().unwrap();
    let parked = [(crate::support::stores::placed(99), lease)];
    park_deliveries(&world, "billing.invoice", fence, &parked).await.unwrap();
    let printed = tool.run(&["consumers", "lag", "billing.invoice", "-o", "jsonl"]).await;
    let lag: Value = serde_json::from_str(printed.out.lines().next().unwrap()).unwrap();
    assert_eq!((&lag["behind"], &lag["oldest_seconds"]), (&0.into(), &Value::Null), "{lag}");
    assert_eq!((&lag["parked"], &lag["dead_letters"]), (&1.into(), &7.into()), "{lag}");
    let age = |name: &str| lag[name].as_f64().unwrap_or_else(|| panic!("{name}: {lag}"));
    assert!(age("oldest_parked_seconds") < age("oldest_dead_letter_seconds"), "{lag}");
    let table = tool.ok(&["consumers", "lag", "billing.invoice"]).await;
    assert!(table.starts_with("CONSUMER") && table.contains("OLDEST DEAD"), "{table}");
    let unknown = tool.ends(3, &["consumers", "lag", "nobody"]).await;
    assert!(unknown.contains("known are billing.invoice"), "{unknown}");
}

/// Of each partition the messages are counted, its owner is shown, and no reader stays at the server.
async fn an_ordered_consumer_is_behind_in_its_partitions<DB: TestDb>() {
    let mut rig = Rig::<DB>::new().await;
    rig.publish(0..50).await;
    let running = Deployed::start(rig.consumer().handler::<in_order>());
    rig.handled(50).await;
    rig.is_behind(0).await;
    running.stop().await;
    rig.publish(50..90).await;

    let readers = rig.readers().await;
    let lag = without_a_broker(&rig.tool).await;
    assert_eq!((&lag["reads"], &lag["behind"]), (&"partitions".into(), &Value::Null), "{lag}");
    assert_eq!(lag["unknown_because"], "give --nats-url");
    let lag = rig.is_behind(40).await;
    assert!(lag["oldest_seconds"].as_f64() < lag["last_claim_seconds"].as_f64(), "{lag}");
    let stream = rig.target.jetstream().await.get_stream(&rig.target.name).await.unwrap();
    let subjects =
        stream.info_with_subjects(format!("{}.*.orders.placed", rig.target.prefix())).await.unwrap();
    let held: HashMap<String, usize> = subjects.try_collect().await.unwrap();
    let behind = |partition: &Value| partition["behind"].as_u64().unwrap();
    for partition in lag["partitions"].as_array().unwrap() {
        let number = partition["partition"].as_u64().unwrap();
        let subject = format!("{}.{number}.orders.placed", rig.target.prefix());
        let held = held.get(&subject).copied().unwrap_or(0) as u64;
        assert!(behind(partition) <= held && (held > 0) >= (behind(partition) > 0), "{partition}");
        assert_eq!(partition["owner"], Value::Null, "{partition}");
    }
    assert!(rig.readers().await.iter().all(|name| readers.contains(name)), "{readers:?}");

    let table = rig.ran(&["tests.in_order"]).await;
    assert!(table.code == 0 && table.out.contains("\n\nPARTITION  OWNER"), "{table:?}");
    let running = Deployed::start(rig.consumer().handler::<in_order>());
    rig.handled(90).await;
    let lag = rig.is_behind(0).await;
    let owners = lag["partitions"].as_array().unwrap().iter().map(|partition| &partition["owner"]);
    let owners = Vec::from_iter(owners.filter(|owner| owner.is_string()));
    assert!(owners.len() == 16 && owners.iter().all(|owner| *owner == owners[0]), "{lag}");
    assert_eq!((&lag["oldest_seconds"], &lag["state"]), (&Value::Null, &"running".into()), "{lag}");
    running.stop().await;

    // Another stream of the same name is read from its beginning.
    rig.stop_relay().await;
    let jetstream = rig.target.jetstream().await;
    jetstream.delete_stream(&rig.target.name).await.unwrap();
    rig.target.create(rig.target.config(&["orders.placed"])).await;
    let lag = rig.lag().await;
    let restarted = lag["partitions"].as_array().unwrap().iter();
    let restarted =
        restarted.filter(|one| one["restarts_because"] == "it is another stream of the same name");
    assert!(restarted.count() > 0 && lag["behind"] == 0, "{lag}");
}

/// What was delivered and is not acknowledged counts as well.
async fn a_consumer_without_order_is_behind_by_what_the_server_says<DB: TestDb>() {
    let mut rig = Rig::<DB>::new().await;
    rig.publish(0..20).await;
    let running = Deployed::start(rig.consumer().handler::<any_order>());
    rig.handled(20).await;
    rig.is_behind(0).await;
    running.stop().await;
    rig.publish(20..50).await;
    let lag = without_a_broker(&rig.tool).await;
    assert_eq!((&lag["reads"], &lag["behind"]), (&"unknown".into(), &Value::Null), "{lag}");
    assert!(
        lag["unknown_because"].as_str().unwrap().starts_with("give --nats-url if it reads NATS"),
        "{lag}"
    );
    let said = rig.tool.run(&["consumers", "lag"]).await;
    assert!(
        said.code == 0 && said.err.contains("BEHIND and OLDEST of tests.any_order are unknown"),
        "{said:?}"
    );

    let doctor = rig.with_server(&["doctor", "-o", "json"]).await;
    let of_stream = findings(&doctor, &format!("stream {}", rig.target.name));
    assert!(of_stream[0].1.starts_with("50 messages"), "{doctor:?}");
    let lag = rig.is_behind(30).await;
    assert_eq!((&lag["reads"], &lag["unacknowledged"]), (&"durable".into(), &0.into()), "{lag}");
    assert!(lag["oldest_seconds"].as_f64() < lag["last_claim_seconds"].as_f64(), "{lag}");
    let stream = rig.target.jetstream().await.get_stream(&rig.target.name).await.unwrap();
    let consumer: PullConsumer = stream.get_consumer("tests_any_order").await.unwrap();
    let three = consumer.fetch().max_messages(3).messages().await.unwrap();
    let three: Vec<_> = three.map(|message| message.unwrap()).collect().await;
    let lag = rig.is_behind(30).await;
    assert_eq!((three.len(), &lag["unacknowledged"]), (3, &3.into()), "{lag}");
    for message in three {
        message.ack_with(async_nats::jetstream::AckKind::Nak(None)).await.unwrap();
    }
    let running = Deployed::start(rig.consumer().handler::<any_order>());
    rig.handled(50).await;
    let lag = rig.is_behind(0).await;
    assert_eq!((&lag["unacknowledged"], &lag["oldest_seconds"]), (&0.into(), &Value::Null), "{lag}");
    running.stop().await;
    rig.stop_relay().await;
}

/// A consumer of a queue of SQS is not on the stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_sqs_is_left_out_with_a_word() {
    let mut rig = Rig::<Sqlite>::new().await;
    rig.publish(0..1).await;
    let sqs = FakeSqs::start().await.unwrap();
    let options = twinbox::aws::SqsOptions::new()
        .queue("tests.any_order", sqs.queue("tests.any_order"))
        .region("eu-west-1")
        .endpoint_url(sqs.endpoint_url())
        .credentials("any", "any", None);
    let consumer = Consumer::new((*rig.world).clone(), ()).handler::<any_order>();
    let running = Deployed::start(consumer.transport(Sqs::with_options(options).unwrap()));
    eventually(async || (rig.world.rows("consumers").await == 1).then_some(())).await;
    running.stop().await;
    let lag = rig.lag().await;
    assert_eq!((&lag["reads"], &lag["behind"]), (&"unknown".into(), &Value::Null), "{lag}");
    let because = |lag: &Value| lag["unknown_because"].as_str().unwrap().to_owned();
    let reason = because(&lag);
    assert!(reason.contains("recorded no stream of NATS") && reason.contains("queue of SQS"), "{reason}");
    let prefix = rig.target.prefix();
    let named = ["--nats-stream", &rig.target.name, "--nats-prefix", &prefix, "-o", "json"];
    let reason = because(&only(&rig.ran(&named).await));
    assert!(reason.contains("has no such consumer") && reason.contains("queue of SQS"), "{reason}");
    rig.stop_relay().await;
}

/// Another consumer has recorded a stream that the server does not have.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_gone_hides_no_other() {
    let mut rig = Rig::<Sqlite>::new().await;
    rig.publish(0..10).await;
    let running = Deployed::start(rig.consumer().handler::<any_order>());
    rig.handled(10).await;
    running.stop().await;
    let gone = NatsOptions::new("nats://localhost").stream("GONE").address().to_string();
    rig.world.inbox("tests.a_gone").heartbeat(Some(&gone)).await.unwrap();
    let ran = rig.ran(&["-o", "json"]).await;
    assert!(ran.code == 5 && ran.err.contains("the stream `GONE`"), "{ran:?}");
    let lags: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&lags[0]["consumer"], &lags[0]["behind"]), (&"tests.a_gone".into(), &Value::Null));
    assert!(lags[0]["unknown_because"].as_str().unwrap().contains("GONE"), "{ran:?}");
    assert_eq!((&lags[1]["consumer"], &lags[1]["behind"]), (&"tests.any_order".into(), &0.into()));
    let doctor = rig.with_server(&["doctor", "-o", "json"]).await;
    let [(verdict, found)] = &findings(&doctor, "stream GONE")[..] else { panic!("{doctor:?}") };
    assert!(verdict == "warning" && found.contains("has recorded it"), "{found}");
    assert!(findings(&doctor, &format!("stream {}", rig.target.name))[0].1.starts_with("10 messages"));
    rig.stop_relay().await;
}

/// What the database knows is printed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_broker_a_lag_is_partly_known() {
    let mut rig = Rig::<Sqlite>::new().await;
    rig.publish(0..10).await;
    let running = Deployed::start(rig.consumer().handler::<in_order>());
    rig.handled(10).await;
    running.stop().await;
    rig.stop_relay().await;
    let ran = rig.ran(&["-o", "json", "--nats-stream", "GONE"]).await;
    assert!(ran.code == 5 && ran.err.contains("the stream `GONE`: the stream does not exist"), "{ran:?}");
    assert!(only(&ran)["last_claim_seconds"].is_number(), "{ran:?}");
    let server = NatsServer::start().unwrap();
    rig.target.url = server.url().replace("nats://", "nats://app:hush@");
    drop(server);
    let ran = rig.ran(&["tests.in_order"]).await;
    assert!(ran.code == 5 && ran.err.contains("NATS cannot be reached"), "{ran:?}");
    assert!(ran.out.contains("PARTITION") && !format!("{ran:?}").contains("hush"), "{ran:?}");
}

/// Nobody runs it, until somebody does.
async fn a_consumer_lags<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    let running = Deployed::start(shop::consumer(&world, &deployed));
    eventually(async || (world.rows("cursors").await == 1).then_some(())).await;
    running.stop().await;
    shop::publish(&world, 0..40).await;
    let mut book = Book::open(&world, "A consumer lags");
    let behind = |ran: &Ran| {
        let row = ran.out.lines().nth(1).unwrap_or_else(|| panic!("{ran:?}"));
        let cells = Vec::from_iter(row.split_whitespace());
        assert_eq!((ran.code, cells[..2].join(" ")), (0, "billing.invoice log".to_owned()), "{ran:?}");
        cells[3].to_owned()
    };
    assert_eq!(behind(&book.ran().await), "40");
    book.others("mend what the row shows");
    let running = Deployed::start(shop::consumer(&world, &deployed));
    eventually(async || (world.effects().await.len() == 40).then_some(())).await;
    running.stop().await;
    assert_eq!(behind(&book.ran().await), "0");
    book.close();
}

crate::support::cases::cases! {
    all: [
        a_consumer_lags,
        a_consumer_of_the_log_is_behind_by_what_it_has_not_settled,
        a_consumer_without_order_is_behind_by_what_the_server_says,
        an_ordered_consumer_is_behind_in_its_partitions,
    ]
}
