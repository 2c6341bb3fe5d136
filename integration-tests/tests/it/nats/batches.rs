//! Batches: the server stores messages in the order of sending, and nothing behind one that it refuses.
use super::*;
use crate::support::publisher::{Sent, outgoing, repeated, results, results_with};
use async_nats::jetstream::stream::Config;
use futures::{StreamExt as _, future::join_all};
use serde::Deserialize;
use twinbox_testkit::{proxy::Proxy, servers::NatsServer};

const KEY: &str = "one key";
/// The place of the message at fault.
const FAULT_AT: usize = 150;

/// A stream of the test's own that takes batches.
async fn batched(name: &str) -> Nats {
    let nats = Nats::with_options(options(&shared_server(), name)).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    nats
}

fn of_one_key(n: usize) -> Message {
    Message { key: Some(KEY.into()), payload: vec![b'x'; 100].into(), ..message(&n.to_string()) }
}

/// The ids of messages, and their results.
type Results = Vec<(String, Result<(), PublishErrorKind>)>;

/// Sends messages as a relay does: those behind a failure again, until each has a result of its own.
async fn send_all(publisher: &mut dyn Publisher, messages: &[Message]) -> Results {
    send_each(publisher, outgoing(messages)).await
}

/// The same with messages that may have been sent before.
async fn send_rest(publisher: &mut dyn Publisher, messages: &[Message]) -> Results {
    send_each(publisher, repeated(messages)).await
}

async fn send_each(publisher: &mut dyn Publisher, mut rest: Vec<Outgoing<'_>>) -> Results {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let answers = results(publisher.send(&rest).await).await;
        let mut behind = Vec::new();
        for (outgoing, answer) in rest.into_iter().zip(answers) {
            match answer.map_err(|error| error.kind()) {
                Err(PublishErrorKind::BehindFailure) => {
                    behind.push(Outgoing { may_be_repeated: true, ..outgoing });
                }
                result => all.push((outgoing.message.id.clone(), result.map(drop))),
            }
        }
        rest = behind;
    }
    all
}

/// The ids of the events that the stream has stored, in its order.
async fn stored(nats: &Nats, url: &str) -> Vec<String> {
    let stream = outsider(url).await.get_stream(stream_of(nats)).await.unwrap();
    let mut ids = Vec::new();
    for sequence in 1..=stream.cached_info().state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        ids.extend(message.headers.get("ce-id").map(ToString::to_string));
    }
    ids
}

fn ids(of: impl Iterator<Item = usize>) -> Vec<String> {
    of.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn messages_of_one_key_are_stored_in_order_as_a_batch() {
    let nats = batched("batch").await;
    let client = async_nats::connect(shared_server()).await.unwrap();
    let mut seen = client.subscribe(format!("{}.>", prefix_of(&stream_of(&nats)))).await.unwrap();
    client.flush().await.unwrap();
    let messages: Vec<_> = (0..2000).map(of_one_key).collect();
    let results = send_all(&mut *publisher(&nats).await, &messages).await;
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    assert_eq!(stored(&nats, &shared_server()).await, ids(0..2000));
    for _ in 0..2000 {
        let reply = timeout(LIMIT, seen.next()).await.unwrap().unwrap().reply.unwrap();
        assert!(reply.ends_with(".$FI"), "sent alone: {reply}");
    }
}

/// The message at fault gets the result that it gets alone, and the others are stored in their order.
async fn one_is_at_fault(nats: &Nats, at: usize, fault: Message, kind: PublishErrorKind) {
    let mut messages: Vec<_> = (0..400).map(of_one_key).collect();
    messages[at] = Message { id: "fault".into(), ..fault };
    let results = send_all(&mut *publisher(nats).await, &messages).await;
    let failed: Vec<_> = results.iter().filter(|(_, result)| result.is_err()).collect();
    assert_eq!(failed, [&("fault".to_owned(), Err(kind))]);
    assert_eq!(stored(nats, &shared_server()).await, ids((0..400).filter(|n| *n != at)));
}

#[tokio::test]
async fn a_message_that_is_refused_stops_no_other_one() {
    let nats = Nats::with_options(options(&shared_server(), "refused")).unwrap();
    nats.provision(&StreamOptions::default().max_message_bytes(4000)).await.unwrap();
    let fault = Message { payload: vec![b'x'; 5000].into(), ..of_one_key(0) };
    one_is_at_fault(&nats, FAULT_AT, fault, PublishErrorKind::RefusedForGood).await;
}

#[tokio::test]
async fn a_message_above_the_limit_of_the_server_stops_no_other_one() {
    let nats = batched("huge").await;
    let fault = Message { payload: vec![b'x'; 2 * 1024 * 1024].into(), ..of_one_key(0) };
    one_is_at_fault(&nats, FAULT_AT, fault, PublishErrorKind::RefusedForGood).await;
}

#[tokio::test]
async fn a_batch_that_begins_with_a_message_above_the_limit_of_the_server_goes_on() {
    let nats = batched("huge_first").await;
    let fault = Message { payload: vec![b'x'; 2 * 1024 * 1024].into(), ..of_one_key(0) };
    one_is_at_fault(&nats, 0, fault, PublishErrorKind::RefusedForGood).await;
}

#[tokio::test]
async fn a_subject_without_a_stream_stops_no_other_one() {
    let nats = batched("homeless").await;
    let js = outsider(&shared_server()).await;
    let config = js.get_stream(stream_of(&nats)).await.unwrap().cached_info().config.clone();
    let subjects = vec![format!("{}.*.orders.placed", prefix_of(&stream_of(&nats)))];
    js.update_stream(Config { subjects, ..config }).await.unwrap();
    let fault = Message { event_type: "orders.other".into(), ..of_one_key(0) };
    one_is_at_fault(&nats, FAULT_AT, fault, PublishErrorKind::Unroutable).await;
}

#[tokio::test]
async fn a_stream_that_takes_no_batches_any_more_gets_messages_one_by_one() {
    let nats = batched("switched").await;
    let mut publisher = publisher(&nats).await;
    let js = outsider(&shared_server()).await;
    let config = js.get_stream(stream_of(&nats)).await.unwrap().cached_info().config.clone();
    js.update_stream(Config { allow_batch_publish: false, ..config }).await.unwrap();
    let messages: Vec<_> = (0..400).map(of_one_key).collect();
    let results = send_all(&mut *publisher, &messages).await;
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    assert_eq!(stored(&nats, &shared_server()).await, ids(0..400));
}

/// The server begins a batch before it looks at the bounds of the stream.
#[tokio::test]
async fn a_full_stream_ends_a_batch_without_a_time_out() {
    let nats = batched("full").await;
    let js = outsider(&shared_server()).await;
    let config = js.get_stream(stream_of(&nats)).await.unwrap().cached_info().config.clone();
    js.update_stream(Config { max_messages: 10, ..config }).await.unwrap();
    let messages: Vec<_> = (0..400).map(of_one_key).collect();
    let mut left = &messages[..];
    for _ in 0..4 {
        // A new one sends a batch again, and not one by one.
        let results = results(publisher(&nats).await.send(&repeated(left)).await).await;
        left = &left[results.iter().take_while(|result| result.is_ok()).count()..];
        let expected = [PublishErrorKind::BehindFailure, PublishErrorKind::Unavailable];
        let is_expected = |result: &Sent| result.as_ref().err().is_none_or(|e| expected.contains(&e.kind()));
        assert!(results.iter().all(is_expected), "{results:?}");
    }
    assert_eq!(left.len(), 390);
}

#[tokio::test]
async fn a_link_that_is_cut_inside_a_batch_loses_and_reorders_nothing() {
    let server = NatsServer::start().unwrap();
    let address = server.url().trim_start_matches("nats://").parse().unwrap();
    let proxy = Proxy::start(address).await.unwrap();
    let nats = Nats::with_options(options(&format!("nats://{}", proxy.address()), "cut")).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let messages: Vec<_> = (0..2000).map(of_one_key).collect();
    let mut rest = messages.clone();
    for cut_after in [0, 300, 900] {
        let mut publisher = publisher(&nats).await;
        let answers = publisher.send(&repeated(&rest)).await;
        let results = results_with(answers, |n| {
            if n == cut_after {
                proxy.cut();
            }
        })
        .await;
        proxy.restore();
        let done = results.iter().take_while(|result| result.is_ok()).count();
        assert!(results[done..].iter().all(Result::is_err), "nothing is stored behind a failure");
        rest.drain(..done);
    }
    assert!(!rest.is_empty(), "no batch was cut");
    let results = send_rest(&mut *publisher(&nats).await, &rest).await;
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    assert_eq!(stored(&nats, &server.url()).await, ids(0..2000));
}

#[tokio::test]
async fn a_server_that_falls_silent_inside_a_batch_loses_and_reorders_nothing() {
    let server = NatsServer::start().unwrap();
    let options = options(&server.url(), "silent");
    let nats = Nats::with_options(options.clone()).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let mut publisher = publisher(&Nats::with_options(options.publish_timeout(SILENCE)).unwrap()).await;
    let messages: Vec<_> = (0..2000).map(of_one_key).collect();
    let answers = publisher.send(&outgoing(&messages)).await;
    let results = results_with(answers, |n| {
        if n == 300 {
            server.pause().unwrap();
        }
    })
    .await;
    let results: Vec<_> = results.into_iter().map(|result| result.map_err(|error| error.kind())).collect();
    server.resume().unwrap();
    let done = results.iter().take_while(|result| result.is_ok()).count();
    assert!(done < 2000, "no batch was interrupted");
    assert_eq!(results[done], Err(PublishErrorKind::Unanswered), "the first is in doubt");
    let behind = |result: &Result<_, _>| *result == Err(PublishErrorKind::BehindFailure);
    assert!(results[done + 1..].iter().all(behind), "{:?}", &results[done..]);
    // The same publisher goes on. On a busy machine an answer may be late again.
    let mut rest = Vec::from_iter(&messages[done..]);
    in_time(async {
        while let Some(done) = send_again(&mut *publisher, &rest).await.iter().position(Result::is_err) {
            rest.drain(..done);
        }
    })
    .await;
    assert_eq!(stored(&nats, &server.url()).await, ids(0..2000));
}

#[tokio::test]
async fn a_server_that_is_killed_inside_a_batch_loses_and_reorders_nothing() {
    let mut server = NatsServer::start().unwrap();
    let nats = Nats::with_options(options(&server.url(), "killed")).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let messages: Vec<_> = (0..2000).map(of_one_key).collect();
    let answers = publisher(&nats).await.send(&outgoing(&messages)).await;
    let results = results_with(answers, |n| {
        if n == 300 {
            server.kill().unwrap();
        }
    })
    .await;
    let done = results.iter().take_while(|result| result.is_ok()).count();
    assert!(done < 2000, "no batch was interrupted");
    assert!(results[done..].iter().all(Result::is_err), "nothing is stored behind a failure");
    server.restart().unwrap();
    let results = send_rest(&mut *publisher(&nats).await, &messages[done..]).await;
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    assert_eq!(stored(&nats, &server.url()).await, ids(0..2000));
}

/// The server answers after every fiftieth message, and the number of these messages is no multiple of it.
#[tokio::test]
async fn a_batch_that_gets_no_more_messages_ends_and_the_next_one_begins() {
    let nats = batched("idle").await;
    let mut publisher = publisher(&nats).await;
    let messages: Vec<_> = (0..3 * 133).map(of_one_key).collect();
    for some in messages.chunks(133) {
        let results = timeout(LIMIT, send_all(&mut *publisher, some)).await.unwrap();
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    }
    assert_eq!(stored(&nats, &shared_server()).await, ids(0..3 * 133));
}

/// After how many messages the server answers, as it says in each answer.
#[derive(Deserialize)]
struct Pace {
    msgs: u64,
}

/// A server has a number of answers for all batches of a stream together.
#[tokio::test]
async fn a_server_that_answers_each_message_gets_all_in_their_order() {
    const OTHERS: usize = 600;
    let server = NatsServer::start().unwrap();
    let nats = Nats::with_options(options(&server.url(), "narrow")).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut began = client.subscribe("others.>").await.unwrap();
    for other in 0..OTHERS {
        let (subject, reply) =
            (format!("{}.other", prefix_of(&stream_of(&nats))), format!("others.{other}.50.fail.1.0.$FI"));
        client.publish_with_reply(subject, reply, "".into()).await.unwrap();
    }
    for _ in 0..OTHERS {
        timeout(LIMIT, began.next()).await.unwrap().unwrap();
    }
    let mut answers = client.subscribe("_INBOX.>").await.unwrap();
    client.flush().await.unwrap();
    let messages: Vec<_> = (0..400).map(of_one_key).collect();
    let results = send_all(&mut *publisher(&nats).await, &messages).await;
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    let mut paces = Vec::new();
    while paces.len() < messages.len() / 2 {
        let answer = timeout(LIMIT, answers.next()).await.unwrap().unwrap();
        paces.extend(serde_json::from_slice::<Pace>(&answer.payload).map(|pace| pace.msgs));
    }
    assert!(paces.iter().all(|pace| *pace == 1), "{paces:?}");
    assert_eq!(stored(&nats, &server.url()).await, ids(0..400));
}

#[tokio::test]
async fn publishers_that_race_keep_the_orders_of_their_keys() {
    const PUBLISHERS: usize = 8;
    let nats = batched("race").await;
    let of = |publisher: usize, n: usize| Message {
        key: Some(publisher.to_string()),
        ..of_one_key(PUBLISHERS * n + publisher)
    };
    join_all((0..PUBLISHERS).map(async |number| {
        let messages: Vec<_> = (0..1000).map(|n| of(number, n)).collect();
        let results = send_all(&mut *publisher(&nats).await, &messages).await;
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    }))
    .await;
    let mut next = [0; PUBLISHERS];
    for id in stored(&nats, &shared_server()).await {
        let id: usize = id.parse().unwrap();
        let (number, n) = (id % PUBLISHERS, id / PUBLISHERS);
        assert_eq!(n, next[number], "of publisher {number}");
        next[number] += 1;
    }
    assert_eq!(next, [1000; PUBLISHERS]);
}
