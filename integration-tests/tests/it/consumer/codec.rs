//! Payloads that are encoded between the event and the row, and decoded before a handler sees them.
use crate::support::{
    cases::cases,
    codec::{Cipher, ciphered, store_with},
    consumer::run_until,
    database::SERVICE,
    publisher::{secret, send_to},
    relay::{Running, Target},
    stores::{TestDb, World, effect, placed},
    wait::in_time,
};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use twinbox::{
    BatchTx, Consumer, Delivery, DeliveryOutcome, Dialect, Draft, ErrorKind, Event, HandlerResult, Message,
    Store, StoreOptions, Timestamp, Tx,
    aws::{EventBridge, EventBridgeOptions},
    codec::{EncodedPayload, PayloadCodec, PayloadContext},
    event_handler,
    inbox::InboxClaim,
    limits,
    log::Log,
    seam::BoxError,
};
use twinbox_core::Destination as _;
use twinbox_testkit::{Harness, aws::FakeEventBridge};

const NAME: &str = "Ada Lovelace";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Event)]
#[event(type = "people.moved", version = 1, key = n)]
struct Moved {
    n: i64,
    name: String,
}

fn moved(n: i64) -> Moved {
    Moved { n, name: NAME.to_owned() }
}

/// What becomes of a payload's length.
struct Scale(usize, usize);

impl PayloadCodec for Scale {
    fn name(&self) -> &str {
        "scale"
    }

    fn encode(&self, _: &PayloadContext<'_>, payload: &[u8]) -> Result<EncodedPayload, BoxError> {
        Ok(EncodedPayload::new(vec![0; payload.len() * self.0 / self.1]))
    }

    fn decode(&self, _: &PayloadContext<'_>, _: &[(String, String)], _: &[u8]) -> Result<Vec<u8>, BoxError> {
        Err("nobody reads it".into())
    }
}

async fn publish<DB: Dialect>(store: &Store<DB>, drafts: Vec<Draft>) {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
}

async fn rows<DB: Dialect>(store: &Store<DB>) -> Vec<Message> {
    store.published("people.moved", 100).await.unwrap()
}

/// The messages that handlers were given.
type Seen = Arc<Mutex<Vec<Message>>>;

#[event_handler(consumer = "tests.codec")]
async fn note<DB: Dialect>(seen: &Seen, tx: &mut Tx<'_, DB>, person: Delivery<Moved>) -> HandlerResult {
    effect::<DB>(tx, person.n).await?;
    assert_eq!(*person, moved(person.n));
    seen.lock().unwrap().push(person.message().clone());
    Ok(())
}

#[event_handler(consumer = "tests.codec.batch", batch = 10)]
async fn note_all<DB: Dialect>(
    _: &Seen,
    tx: &mut BatchTx<'_, DB>,
    people: Vec<Delivery<Moved>>,
) -> HandlerResult {
    for person in people {
        effect::<DB>(tx, 1_000 + person.n).await?;
        assert_eq!(person.name, NAME);
    }
    Ok(())
}

/// Published in every way there is.
async fn what_is_published_is_unreadable_in_its_row_and_plain_to_its_handler<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let store = ciphered(&world);
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish(&mut tx, &moved(0)).await.unwrap();
    store.outbox().publish_ordered(&mut tx, &moved(1)).await.unwrap();
    tx.commit().await.unwrap();
    let xml = Draft::of(&moved(2)).unwrap().content_type("text/json; v=1").header("region", "eu");
    let later = Draft::of(&moved(3)).unwrap().not_before(Timestamp::from_micros(0));
    publish(&store, vec![xml, later]).await;
    assert_eq!(Log::new(&store).move_due(10).await.unwrap().messages, 1);
    let harness = Harness::new(&store, ());
    harness.run(async |tx: &mut Tx<'_, DB>| Ok(tx.publish(&moved(4)).await.map(drop)?)).await.unwrap();

    let rows = rows(&store).await;
    assert_eq!(rows.len(), 5);
    for row in &rows {
        assert!(!row.payload.windows(3).any(|bytes| bytes == b"Ada"), "{:?}", row.payload);
        assert_eq!((row.header("twinbox-codec"), row.header("key-id")), (Some("cipher"), Some("7")));
        assert_eq!(row.content_type, "application/octet-stream");
    }
    let seen = Seen::default();
    let consumer = Consumer::new(store.clone(), seen.clone()).handler::<note>().handler::<note_all>();
    run_until(consumer, async || world.effects().await.len() == 10).await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let with_headers: Vec<_> = seen.iter().filter(|m| m.header("region").is_some()).collect();
    assert_eq!(with_headers.len(), 1);
    assert_eq!(with_headers[0].content_type, "text/json; v=1");
    for message in &seen {
        assert_eq!((message.header("key-id"), message.header("twinbox-codec")), (Some("7"), None));
        assert!(message.content_type.contains("json") && message.header("twinbox-content-type").is_none());
    }
    assert_eq!(harness.published::<Moved>().await, [0, 1, 2, 3, 4].map(moved));
}

/// The relay has no codec. NATS cuts the blanks off the content type, to which the payload is bound.
async fn an_encoded_message_goes_through_a_broker_as_it_is<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let store = ciphered(&world);
    let draft = Draft::of(&moved(1)).unwrap().subject("people/1 é").content_type(" text/json ");
    publish(&store, vec![draft]).await;
    let target = Target::shared();
    let relay = Running::start(&*world, &target);
    relay.published(1).await;
    let seen = Seen::default();
    let consumer = Consumer::new(store, seen.clone()).transport(target.destination()).handler::<note>();
    run_until(consumer, async || world.effects().await == [1]).await;
    assert_eq!(seen.lock().unwrap()[0].content_type, "text/json");
    relay.stop().await;
}

/// EventBridge would refuse it as JSON.
async fn an_encoded_payload_is_base64_in_an_eventbridge_detail<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let store = ciphered(&world);
    publish(&store, vec![Draft::of(&moved(1)).unwrap()]).await;
    let fake = FakeEventBridge::start("people").await.unwrap();
    let options = EventBridgeOptions::new("people").region("eu-west-1").endpoint_url(fake.endpoint_url());
    let bus = EventBridge::with_options(options.credentials("AKIDTEST", "secret", None)).unwrap();
    let mut publisher = in_time(bus.connect(&secret())).await.unwrap();
    let message = rows(&store).await.remove(0);
    send_to(&mut *publisher, &[&message]).await.remove(0).unwrap();
    let detail = fake.taken()[0]["Detail"].as_str().unwrap().to_owned();
    let detail: serde_json::Value = serde_json::from_str(&detail).unwrap();
    assert!(detail["data_base64"].is_string() && detail["data"].is_null(), "{detail}");
    assert_eq!(detail["datacontenttype"], "application/octet-stream");
    assert_eq!(detail["twinboxheaders"], r#"[["key-id","7"],["twinbox-codec","cipher"]]"#);
}

async fn what_cannot_be_decoded_is_dead_at_once_and_says_what_to_configure<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let store = ciphered(&world);
    publish(&store, vec![Draft::of(&moved(1)).unwrap(), Draft::of(&moved(2)).unwrap()]).await;
    let rows = rows(&store).await;
    let another_key = StoreOptions::new().codec(Cipher::new("cipher", 8));
    for (options, row, why) in [
        (
            StoreOptions::new().codec(Cipher::new("other", 7)),
            &rows[0],
            "the payload was encoded with \"cipher\", which is not configured here: give it to the \
             consumer's \
             store with `StoreOptions::codec` or `StoreOptions::decoder`",
        ),
        (
            another_key,
            &rows[1],
            "the codec \"cipher\" cannot decode the payload; check that the consumer's store has the keys of \
             the \
             producer's store: no key 7",
        ),
        (
            StoreOptions::new().codec(Cipher::new("cipher", 7)),
            &Message { id: "stolen".into(), ..rows[0].clone() },
            "the codec \"cipher\" cannot decode the payload; check that the consumer's store has the keys of \
             the \
             producer's store: another row's payload",
        ),
    ] {
        let harness = Harness::new(&store_with(&world, options), Seen::default());
        let outcome = harness.deliver::<note>(row).await;
        let DeliveryOutcome::DeadLettered { error } = outcome else { panic!("{outcome:?}") };
        assert!(error.starts_with(why), "{error}");
        let dead_letter = &world.inbox("tests.codec").dead_letters(1).await.unwrap()[0];
        assert_eq!((&dead_letter.message, dead_letter.reason.as_str()), (row, "undecodable"));
    }
    assert!(world.effects().await.is_empty());
}

/// A codec that is new finds plain rows of before, of SQL, and of the codec before it.
async fn older_rows_are_read_beside_a_new_codec<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, vec![Draft::of(&moved(1)).unwrap()]).await;
    publish(&ciphered(&world), vec![Draft::of(&moved(2)).unwrap()]).await;
    let options = StoreOptions::new().codec(Cipher::new("newer", 9)).decoder(Cipher::new("cipher", 7));
    let store = store_with(&world, options);
    publish(&store, vec![Draft::of(&moved(3)).unwrap()]).await;
    let consumer = Consumer::new(store, Seen::default()).handler::<note>();
    run_until(consumer, async || world.effects().await == [1, 2, 3]).await;
    assert_eq!(world.rows("dead_letters").await, 0);
}

async fn a_codec_that_refuses_writes_nothing_and_shifts_no_id<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let store = ciphered(&world);
    let refused = || Draft::raw("people.moved", 1, "refuse");
    let mut tx = store.begin().await.unwrap();
    let drafts = vec![Draft::of(&moved(1)).unwrap(), refused()];
    let error = store.outbox().publish_all(&mut tx, drafts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Codec);
    assert_eq!(error.to_string(), "the codec \"cipher\" could not encode the payload");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the key is not there");
    tx.commit().await.unwrap();
    assert_eq!(world.rows("outbox").await, 0);

    let cause = placed(1);
    let mut ids = Vec::new();
    for refusals in [0, 2] {
        let InboxClaim::Open(mut attempt) = store.inbox("tests.ids").claim(&cause, false).await.unwrap()
        else {
            panic!()
        };
        for _ in 0..refusals {
            attempt.tx().publish_draft(refused()).await.unwrap_err();
        }
        ids.push(attempt.tx().publish_draft(Draft::raw("people.moved", 1, "{}")).await.unwrap());
        attempt.rollback().await;
    }
    assert_eq!(ids[0], ids[1]);
}

async fn bounds_hold_for_what_was_encoded<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let long = || Draft::raw("people.moved", 1, vec![0; limits::PAYLOAD_BYTES_MAX]);
    publish(&store_with(&world, StoreOptions::new().codec(Scale(1, 2))), vec![long()]).await;
    let longer = Draft::raw("people.moved", 1, vec![0; 2 * limits::PAYLOAD_BYTES_MAX]);
    publish(&store_with(&world, StoreOptions::new().codec(Scale(1, 2))), vec![longer]).await;
    let stretched = store_with(&world, StoreOptions::new().codec(Scale(2, 1)));
    let mut tx = stretched.begin().await.unwrap();
    let error = stretched.outbox().publish_draft(&mut tx, long()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidDraft, "{error}");
    // 31 of its own and the codec's.
    let full = (0..32).fold(Draft::raw("people.moved", 1, "{}"), |d, n| d.header(format!("h{n}"), ""));
    let error = stretched.outbox().publish_draft(&mut tx, full).await.unwrap_err();
    assert!(error.to_string().ends_with("the message has 33 headers, more than the limit of 32"), "{error}");
    tx.commit().await.unwrap();
    assert_eq!(world.rows("outbox").await, 2);
    for name in ["", "two words", "line\nbreak"] {
        let options = StoreOptions::new().codec(Cipher::new(name, 1));
        let error = Store::with_options(world.pool().clone(), SERVICE, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
    }
}

/// The documentation says so.
async fn with_a_fresh_nonce_the_same_message_twice_is_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let store = ciphered(&world);
    let draft = || Draft::of(&moved(1)).unwrap().id("moved-1");
    publish(&store, vec![draft(), draft()]).await;
    let rows = rows(&store).await;
    let harness = Harness::new(&store, Seen::default());
    assert_eq!(harness.deliver::<note>(&rows[0]).await, DeliveryOutcome::Handled);
    let outcome = harness.deliver::<note>(&rows[1]).await;
    assert!(matches!(outcome, DeliveryOutcome::DeadLettered { .. }), "{outcome:?}");
    for (row, differs) in [(&rows[0], false), (&rows[1], true)] {
        let InboxClaim::Duplicate(earlier) = store.inbox("tests.codec").claim(row, true).await.unwrap()
        else {
            panic!()
        };
        assert_eq!(earlier.payload_differs, differs);
    }
}

cases! {
    all: [
        what_is_published_is_unreadable_in_its_row_and_plain_to_its_handler,
        an_encoded_message_goes_through_a_broker_as_it_is,
        an_encoded_payload_is_base64_in_an_eventbridge_detail,
        what_cannot_be_decoded_is_dead_at_once_and_says_what_to_configure,
        older_rows_are_read_beside_a_new_codec,
        a_codec_that_refuses_writes_nothing_and_shifts_no_id,
        bounds_hold_for_what_was_encoded,
        with_a_fresh_nonce_the_same_message_twice_is_an_alarm,
    ]
}
