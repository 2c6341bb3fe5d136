//! Payloads that are old, newer, broken, foreign, or not what their id stands for.
use crate::support::{
    cases::cases,
    stores::{TestDb, World, placed},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use twinbox::{
    Delivery, DeliveryOutcome, Dialect, Event, HandlerResult, Message, MessageId, Tx, event_handler,
    inbox::{ClaimTerms, InboxClaim},
    ops::{Ops, dead_letters::DeadLetterId},
};

#[derive(Debug, Clone, Serialize, Deserialize, Event)]
#[event(type = "orders.priced", version = 2, key = n, previous = PricedV1)]
struct Priced {
    n: i64,
    cents: i64,
}

#[derive(Deserialize, Event)]
#[event(type = "orders.priced", version = 1, retired)]
struct PricedV1 {
    n: i64,
    price: String,
}

impl TryFrom<PricedV1> for Priced {
    type Error = std::num::ParseIntError;

    fn try_from(old: PricedV1) -> Result<Self, Self::Error> {
        Ok(Self { n: old.n, cents: old.price.replace('.', "").parse()? })
    }
}

const CONSUMER: &str = "tests.payloads";

#[event_handler(consumer = "tests.payloads")]
async fn note<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Priced>) -> HandlerResult {
    crate::support::stores::effect::<DB>(tx, order.cents).await?;
    Ok(())
}

fn priced(version: u32, payload: impl Into<Vec<u8>>) -> Message {
    Message {
        event_type: "orders.priced".into(),
        version,
        correlation_id: Some("c-1".into()),
        payload: payload.into().into(),
        ..placed(1)
    }
}

async fn an_older_version_arrives_as_the_current_one<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let old = priced(1, r#"{"n":1,"price":"12.50"}"#);
    assert_eq!(world.deliver::<note>(&old).await, DeliveryOutcome::Handled);
    assert_eq!(world.deliver::<note>(&priced(2, r#"{"n":1,"cents":7}"#)).await, DeliveryOutcome::Handled);
    assert_eq!(world.effects().await, [7, 1250]);
}

/// Trying again would not help, so it is not tried. Fault 45
async fn row_45_what_cannot_be_decoded_is_dead_at_once_with_the_reason<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let payload = "the payload does not have the shape of its version: ";
    let broken = [
        (priced(3, "{}"), "version 3 is newer than 2, the newest known here"),
        (
            priced(0, "{}"),
            "there is no upcaster from version 0: \
             name the type of that version with `previous = …` on the next version",
        ),
        (
            priced(1, r#"{"n":1,"price":"dear"}"#),
            "the payload of version 1 cannot be converted to the next version: invalid digit found in string",
        ),
        (priced(2, ""), payload),
        (priced(2, "\0"), payload),
        (priced(2, b"\xff\xfe".to_vec()), payload),
        (priced(2, "[".repeat(100_000)), payload),
        (priced(2, r#"{"n":1}"#), payload),
        (priced(2, r#"{"n":1e400,"cents":1}"#), payload),
    ];
    for (message, why) in &broken {
        let outcome = world.deliver::<note>(message).await;
        let DeliveryOutcome::DeadLettered { error } = outcome else { panic!("{why}: {outcome:?}") };
        assert!(error.starts_with(why), "{error}");
        let dead_letter = &world.inbox(CONSUMER).dead_letters(1).await.unwrap()[0];
        assert_eq!(&dead_letter.message, message);
        assert_eq!(
            (dead_letter.reason.as_str(), &dead_letter.error, dead_letter.attempts),
            ("undecodable", &error, 0)
        );
        assert_eq!(world.deliver::<note>(message).await, DeliveryOutcome::Duplicate);
    }
    assert!(world.effects().await.is_empty());
}

/// Other systems are not bound by our limits. Fault 45
async fn row_45_a_foreign_envelope_is_handled_and_buried_whatever_it_holds<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let foreign = |version, payload: &str| Message {
        id: format!("a\0b{}", "x".repeat(5_000)),
        source: "https://elsewhere.example/\0\u{1b}[31m".into(),
        key: Some("k\0".repeat(3_000)),
        subject: Some("'; DROP TABLE effects; --".into()),
        content_type: "\0".into(),
        headers: vec![("h\0".into(), "v\0\r\n".into())],
        ..priced(version, payload)
    };
    let fine = foreign(2, r#"{"n":1,"cents":1}"#);
    assert_eq!(world.deliver::<note>(&fine).await, DeliveryOutcome::Handled);
    assert_eq!(world.deliver::<note>(&fine).await, DeliveryOutcome::Duplicate);
    let mut broken = foreign(9, "{}");
    broken.id.push('2');
    let outcome = world.deliver::<note>(&broken).await;
    assert!(matches!(outcome, DeliveryOutcome::DeadLettered { .. }), "{outcome:?}");
    let dead_letter = &world.inbox(CONSUMER).dead_letters(1).await.unwrap()[0];
    assert_eq!(dead_letter.message.headers, broken.headers);
    assert_eq!(dead_letter.message.id, broken.id.replace('\0', "\u{fffd}"));
    assert_eq!(world.effects().await, [1]);
}

/// One id of one source is one message; another source is another message.
async fn the_same_id_of_another_source_is_another_message<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let ours = priced(2, r#"{"n":1,"cents":1}"#);
    let theirs = Message { source: "elsewhere".into(), ..priced(2, r#"{"n":1,"cents":2}"#) };
    let theirs = Message { id: ours.id.clone(), ..theirs };
    assert_eq!(world.deliver::<note>(&ours).await, DeliveryOutcome::Handled);
    assert_eq!(world.deliver::<note>(&theirs).await, DeliveryOutcome::Handled);
    assert_eq!(ours.message_id(), MessageId::of("test", &ours.event_type, &ours.id));
    assert_eq!(world.effects().await, [1, 2]);
}

/// Two different messages under one id: the second is not run, and the claim tells that they differ.
async fn the_same_id_with_another_payload_is_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = priced(2, r#"{"n":1,"cents":1}"#);
    let second = Message { id: first.id.clone(), ..priced(2, r#"{"n":1,"cents":2}"#) };
    assert_eq!(world.deliver::<note>(&first).await, DeliveryOutcome::Handled);
    let outcome = world.deliver::<note>(&second).await;
    assert!(
        matches!(&outcome, DeliveryOutcome::DeadLettered { error } if error.contains("another payload")),
        "{outcome:?}"
    );
    assert_eq!(world.deliver::<note>(&second).await, DeliveryOutcome::Duplicate);
    assert_eq!(world.effects().await, [1]);
    for (message, differs) in [(&first, false), (&second, true)] {
        let InboxClaim::Duplicate(earlier) = world.inbox(CONSUMER).claim(message, true).await.unwrap() else {
            panic!()
        };
        assert_eq!((earlier.payload_differs, earlier.state.as_str()), (differs, "processed"));
    }
}

/// It runs as a message of its own, and the first stays handled.
async fn a_second_message_under_a_known_id_is_kept_once_and_can_be_redriven<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = priced(2, r#"{"n":1,"cents":1}"#);
    let second = Message { id: first.id.clone(), ..priced(2, r#"{"n":1,"cents":2}"#) };
    let third = Message { id: first.id.clone(), ..priced(2, r#"{"n":1,"cents":3}"#) };
    let outcomes = [DeliveryOutcome::Handled, DeliveryOutcome::Duplicate];
    assert_eq!(world.deliver::<note>(&first).await, outcomes[0]);
    for another in [&second, &third] {
        assert!(matches!(world.deliver::<note>(another).await, DeliveryOutcome::DeadLettered { .. }));
        assert_eq!(world.deliver::<note>(another).await, outcomes[1]);
    }
    assert_eq!(world.deliver::<note>(&first).await, outcomes[1]);
    let dead_letters = world.inbox(CONSUMER).dead_letters(10).await.unwrap();
    let kept = Vec::from_iter(dead_letters.iter().rev().map(|dead_letter| &dead_letter.message.payload));
    assert_eq!(kept, [&second.payload, &third.payload]);
    for dead_letter in &dead_letters {
        assert_eq!(dead_letter.reason, "conflicting_payload");
        assert!(
            dead_letter.error.contains(&format!("{:?} of \"test\" was processed before", first.id)),
            "{dead_letter:?}"
        );
        assert!(dead_letter.message.id.starts_with(&format!("{}~", first.id)), "{dead_letter:?}");
    }
    Ops::new(&world).redrive(&[DeadLetterId::OfConsumer(dead_letters[1].id)], Duration::ZERO).await.unwrap();
    let redriven = world.inbox(CONSUMER).take_redrives(false, 10, Duration::from_secs(10)).await.unwrap();
    let InboxClaim::Open(attempt) =
        world.inbox(CONSUMER).claim_redrive(ClaimTerms::default(), &redriven[0]).await.unwrap()
    else {
        panic!()
    };
    attempt.commit().await.unwrap();
    assert_eq!(world.deliver::<note>(&second).await, outcomes[1]);
    assert_eq!((world.rows("dead_letters").await, world.rows("inbox").await), (1, 3));
}

/// Whether the earlier one was handled before or is in the same batch.
async fn the_same_id_with_another_payload_in_a_batch_is_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let batch = |new: Message| {
        let another = Message { payload: priced(2, r#"{"n":1,"cents":2}"#).payload, ..new.clone() };
        [new.clone(), another, new]
    };
    let expected = [(1, true), (2, false)];
    for again in [false, true] {
        let messages = batch(priced(2, r#"{"n":1,"cents":1}"#));
        if again {
            assert_eq!(world.deliver::<note>(&messages[0]).await, DeliveryOutcome::Handled);
        }
        let claimed =
            world.inbox(CONSUMER).claim_batch(ClaimTerms::default(), &messages, again).await.unwrap();
        let mut found: Vec<_> = claimed.duplicates.iter().map(|(n, d)| (*n, d.payload_differs)).collect();
        assert_eq!(claimed.attempt.is_none(), again);
        if again {
            assert_eq!(found.remove(0), (0, false));
        }
        assert_eq!(found, expected);
    }
}

cases! {
    all: [
        an_older_version_arrives_as_the_current_one,
        row_45_what_cannot_be_decoded_is_dead_at_once_with_the_reason,
        row_45_a_foreign_envelope_is_handled_and_buried_whatever_it_holds,
        the_same_id_of_another_source_is_another_message,
        the_same_id_with_another_payload_is_an_alarm,
        a_second_message_under_a_known_id_is_kept_once_and_can_be_redriven,
        the_same_id_with_another_payload_in_a_batch_is_an_alarm,
    ]
}
