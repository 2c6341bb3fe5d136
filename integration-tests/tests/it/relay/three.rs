//! The program with three destinations, and what clients that are not ours read from them.
use super::*;
use crate::support::{
    broker_users::{inbox_of, nats_url_for, without_login},
    helper, long,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    process::Stdio,
};
use tokio::process::{Child, Command};
use twinbox_testkit::{
    servers::{MotoServer, find},
    skipped,
};

/// Messages a second to the bus, so that they are read as fast as they come: moto is slow with long queues.
const RATE: u32 = 120;
const LIMIT: Duration = Duration::from_secs(600);
const TYPES: [&str; 3] = ["orders.placed", "orders.paid", "billing.invoice_sent"];
const WHO: &str = "Jürgen \"%41\" \u{1f980}";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/events.py");

/// Every type, key and payload that is awkward to write in a header or in JSON.
fn draft(n: usize) -> Draft {
    let event_type = TYPES[n % 3];
    let draft = match n % 50 {
        7 => Draft::raw(event_type, 1, format!("line {n}\n\"50 %\"")).content_type("text/plain"),
        8 => Draft::raw(event_type, 1, vec![0, 0xff, b'{']).content_type("application/octet-stream"),
        _ => Draft::raw(event_type, 2, json!({"n": n, "who": WHO}).to_string()),
    };
    let draft = if n.is_multiple_of(11) { draft.subject(format!("order/{n} ä%20")) } else { draft };
    draft.id(format!("o-{n}")).key(format!("Käufer {}%", n % 97))
}

/// What a client has to see of it, apart from time and sequence.
fn expected(n: usize) -> (BTreeMap<&'static str, String>, Value) {
    let mut attributes = BTreeMap::from([
        ("specversion", "1.0".to_owned()),
        ("id", format!("o-{n}")),
        ("source", database::SERVICE.to_owned()),
        ("type", TYPES[n % 3].to_owned()),
        ("partitionkey", format!("Käufer {}%", n % 97)),
    ]);
    if n.is_multiple_of(11) {
        attributes.insert("subject", format!("order/{n} ä%20"));
    }
    let data = match n % 50 {
        7 => json!({"bytes": format!("line {n}\n\"50 %\"").as_bytes()}),
        8 => json!({"bytes": [0, 0xff, b'{']}),
        _ => {
            attributes.insert("dataversion", "2".to_owned());
            return (attributes, json!({"n": n, "who": WHO}));
        }
    };
    let content_type = if n % 50 == 7 { "text/plain" } else { "application/octet-stream" };
    attributes.insert("datacontenttype", content_type.to_owned());
    (attributes, data)
}

fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new(find::python().unwrap());
    command.arg(SCRIPT).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Events by their ids. One that came twice came with the same content.
async fn events(reader: Child) -> BTreeMap<String, Value> {
    let output = timeout(LIMIT, reader.wait_with_output()).await.expect("everything arrives").unwrap();
    assert!(output.status.success());
    let mut events = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let id = event["attributes"]["id"].as_str().unwrap().to_owned();
        let before = events.insert(id, event.clone());
        assert!(before.is_none_or(|before| before == event), "{event}");
    }
    events
}

fn read(arguments: &[&str]) -> Child {
    python(arguments).stdout(Stdio::piped()).spawn().unwrap()
}

fn start_relay(folder: &tempfile::TempDir, toml: &str) -> Child {
    let config: PathBuf = folder.path().join("relay.toml");
    std::fs::write(&config, toml).unwrap();
    let mut program = Command::new(helper::program("twinbox-relay"));
    program.args(["run", "--config"]).arg(config).kill_on_drop(true);
    program.env("AWS_ACCESS_KEY_ID", "any").env("AWS_SECRET_ACCESS_KEY", "any").env("RUST_LOG", "error");
    program.spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_of_the_program_reaches_two_streams_and_a_bus() {
    let moto = match MotoServer::start() {
        Ok(moto) => moto,
        Err(_) if find::python().is_err() => {
            return skipped(&format!("moto: {}", find::python().unwrap_err()));
        }
        Err(error) => panic!("{error}"),
    };
    let (store, folder) = (database::postgres().await, tempfile::tempdir().unwrap());
    let (one, two) = (Target::shared(), Target::shared());
    let made =
        timeout(LIMIT, python(&["bus", &moto.url(), "orders", "orders"]).status()).await.unwrap().unwrap();
    assert!(made.success());
    // Among the first 600 each awkward payload comes with each type, and with a subject.
    let messages = long::or(5000_usize, 600);
    let count = messages.to_string();
    let queue = tokio::spawn(events(read(&["sqs", &moto.url(), "orders", &count])));

    let stream = |id: &str, target: &Target| {
        let (name, prefix, url) = (&target.name, target.prefix(), nats_url_for("relay", &target.url));
        let inbox = inbox_of(&url);
        format!(
            "[destinations.{id}]\nkind = \"nats\"\nurl = {url:?}\ninbox_prefix = {inbox:?}\n\
             stream = {name:?}\nprefix = {prefix:?}\ncreate_stream = true\nstart = \"beginning\"\n"
        )
    };
    let toml = format!(
        "[database]\nurl = {:?}\nservice = {:?}\n{}{}[destinations.bus]\nkind = \"eventbridge\"\n\
         bus = \"orders\"\nregion = \"eu-west-1\"\nendpoint_url = {:?}\nrate = {RATE}\nstart = \
         \"beginning\"\n",
        store.url(),
        database::SERVICE,
        stream("one", &one),
        stream("two", &two),
        moto.url(),
    );
    let relay = start_relay(&folder, &toml);
    let mut published = HashSet::new();
    for page in (0..messages).collect::<Vec<_>>().chunks(500) {
        let mut tx = store.begin().await.unwrap();
        let drafts = page.iter().copied().map(draft).collect();
        let ids = store.outbox().publish_all(&mut tx, drafts).await.unwrap();
        published.extend(ids.iter().map(ToString::to_string));
        tx.commit().await.unwrap();
    }
    for target in [&one, &two] {
        target.holds(messages as u64, async_nats::ConnectOptions::new()).await;
        let held = target.messages(messages).await;
        assert_eq!(target.count().await, messages as u64);
        assert_whole_and_ordered(&held, messages);
        let held: HashSet<_> = held.into_iter().map(|(id, ..)| id).collect();
        assert_eq!(held, published);
    }
    let from_bus = queue.await.unwrap();
    let nats = without_login(&one.url).replace("nats://", "tls://");
    let from_stream = events(read(&["nats", &nats, &one.name, &count])).await;
    drop(relay);

    assert_eq!((from_bus.len(), from_stream.len()), (messages, messages));
    for (id, event) in &from_bus {
        assert_eq!(event, &from_stream[id], "the bus and the stream say different things");
    }
    for n in 0..messages {
        let (attributes, data) = expected(n);
        let event = &from_bus[&format!("o-{n}")];
        let mut seen = event["attributes"].as_object().unwrap().clone();
        assert!(seen.remove("time").is_some() && seen.remove("sequence").is_some(), "{event}");
        assert_eq!((json!(seen), &event["data"]), (json!(attributes), &data));
    }
}
