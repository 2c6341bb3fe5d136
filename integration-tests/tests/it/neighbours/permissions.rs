//! The permissions of the page are enough, and no user has one that it does not use.
use super::*;
use crate::support::{shared_broker::documented_users, tool::Tool};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The subjects of each user: which it may use, or which it has used, by the word `publish` or `subscribe`.
type Subjects = BTreeMap<String, BTreeSet<(&'static str, String)>>;

fn documented() -> Subjects {
    let (mut all, mut user, mut list) = (Subjects::new(), String::new(), "");
    for line in documented_users().lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("user: ") {
            user = rest.split(',').next().unwrap().to_owned();
        } else if line.starts_with("publish:") {
            list = "publish";
        } else if line.starts_with("subscribe:") {
            list = "subscribe";
        } else if let Some(subject) = line.strip_prefix('"') {
            all.entry(user.clone()).or_default().insert((list, subject.trim_end_matches('"').to_owned()));
        }
    }
    all
}

/// Reads the subjects that clients have used from the log of the server.
fn used(log: &str) -> Subjects {
    let (mut all, mut users) = (Subjects::new(), HashMap::new());
    for line in log.lines() {
        let Some((client, command)) = line.split_once(" - cid:").and_then(|(_, rest)| rest.split_once(' '))
        else {
            continue;
        };
        let Some((_, command)) = command.split_once("<<- [") else { continue };
        let mut words = command.trim_end_matches(']').split(' ');
        let list = match words.next() {
            Some("CONNECT") => {
                let user = command.split("\"user\":\"").nth(1).and_then(|rest| rest.split('"').next());
                users.insert(client, user.unwrap_or_default().to_owned());
                continue;
            }
            Some("PUB" | "HPUB") => "publish",
            Some("SUB") => "subscribe",
            _ => continue,
        };
        let (Some(user), Some(subject)) = (users.get(client), words.next()) else { continue };
        all.entry(user.clone()).or_default().insert((list, subject.to_owned()));
    }
    all
}

fn matches(pattern: &str, subject: &str) -> bool {
    let mut words = subject.split('.');
    for token in pattern.split('.') {
        match (token, words.next()) {
            (">", Some(_)) => return true,
            (_, None) => return false,
            (token, Some(word)) if token == "*" || token == word => {}
            _ => return false,
        }
    }
    words.next().is_none()
}

/// The permissions that nobody has used.
fn unused(broker: &SharedBroker) -> Vec<(String, &'static str, String)> {
    let log = std::fs::read_to_string(broker.server.dir().join("log")).unwrap();
    let used = used(&log);
    let mut unused = Vec::new();
    for (user, permissions) in documented() {
        for (list, pattern) in permissions {
            let is_used = used.get(&user).is_some_and(|subjects| {
                subjects.iter().any(|(other, subject)| *other == list && matches(&pattern, subject))
            });
            if !is_used {
                unused.push((user.clone(), list, pattern));
            }
        }
    }
    unused
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_of_the_page_needs_all_of_its_permissions() {
    let world = World::<Postgres>::new().await;
    let broker = SharedBroker::start_with("trace: true");
    broker.nats("admin").provision(&StreamOptions::default()).await.unwrap();
    assert_eq!(documented().len(), 4);
    place(&world, 0..20).await;
    let program = relay(&world, &broker).await;
    run_until(billing(&world, &broker), async || world.effects().await.len() == 20).await;
    // A consumer with one type has a durable of its own kind.
    let jetstream = jetstream::new(broker.client("admin").await);
    let stream = jetstream.get_stream(STREAM).await.unwrap();
    stream.delete_consumer("billing_invoice").await.unwrap();
    let one = Consumer::new((*world).clone(), ()).transport(broker.nats("billing")).handler::<invoice>();
    place(&world, 20..40).await;
    run_until(one, async || world.effects().await.len() == 40).await;
    run_until(search(&world, &broker), async || world.effects().await.len() == 80).await;

    let url = broker.url("operator");
    let server = ["--nats-url", &url, "--nats-inbox-prefix", "_INBOX_operator"];
    let tool = Tool::of(&world);
    let lag = tool.ok(&[&["consumers", "lag", "-o", "json"], &server[..]].concat()).await;
    assert!(lag.contains("billing.invoice") && lag.contains("search.index"), "{lag}");
    let doctor = tool.run(&[&["doctor", "-o", "json"], &server[..]].concat()).await;
    assert!(!doctor.out.contains("does not let this user"), "{doctor:?}");

    // The second run asks for the message at its checkpoint, and an idle reader after a while for its state.
    let mut missing = unused(&broker);
    run_until(search(&world, &broker), async || {
        missing = unused(&broker);
        missing.is_empty()
    })
    .await;
    program.stop().await;
}

#[test]
fn a_log_of_the_server_tells_who_used_what() {
    let log = "\
        [1] t [TRC] 127.0.0.1:1 - cid:4 - <<- [CONNECT {\"user\":\"relay\",\"pass\":\"[REDACTED]\"}]\n\
        [1] t [TRC] 127.0.0.1:1 - cid:4 - \"v1:x\" - <<- [SUB _INBOX_relay.a 1]\n\
        [1] t [TRC] 127.0.0.1:1 - cid:4 - \"v1:x\" - <<- [HPUB events.1.b _INBOX_relay.a 12 14]\n\
        [1] t [TRC] 127.0.0.1:1 - cid:5 - \"v1:x\" - <<- [PUB events.1.a 2]\n";
    let relay = used(log).remove("relay").unwrap();
    let expected = [("publish", "events.1.b"), ("subscribe", "_INBOX_relay.a")];
    assert_eq!(relay, BTreeSet::from(expected.map(|(list, subject)| (list, subject.to_owned()))));
    assert!(matches("a.*.c", "a.b.c") && matches("a.>", "a.b.c") && !matches("a.>", "a"));
    assert!(!matches("a.b", "a.b.c") && !matches("a.b.c", "a.b"));
}
