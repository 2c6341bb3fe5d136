//! Events: names, versions, and the conversion of old versions to the current one.
use serde::{Deserialize, Serialize};
use twinbox::{DecodeError, Draft, Event, Schema};

#[derive(Debug, PartialEq, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 4, key = order.id, subject = order, previous = PlacedV2)]
struct Placed {
    order: Id,
    cents: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Id {
    id: i64,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "orders/{}", self.id)
    }
}

/// There was no version 3.
#[derive(Deserialize, Event)]
#[event(type = "orders.placed", version = 2, previous = PlacedV1, retired)]
struct PlacedV2 {
    id: i64,
    cents: i64,
}

#[derive(Deserialize, Event)]
#[event(type = "orders.placed", version = 1, retired)]
struct PlacedV1 {
    id: i64,
    price: String,
}

impl TryFrom<PlacedV1> for PlacedV2 {
    type Error = std::num::ParseIntError;

    fn try_from(old: PlacedV1) -> Result<Self, Self::Error> {
        Ok(Self { id: old.id, cents: old.price.replace('.', "").parse()? })
    }
}

impl From<PlacedV2> for Placed {
    fn from(old: PlacedV2) -> Self {
        Self { order: Id { id: old.id }, cents: old.cents }
    }
}

const CURRENT: Placed = Placed { order: Id { id: 7 }, cents: 1250 };

#[test]
fn every_known_version_becomes_the_current_one() {
    assert_eq!(Placed::decode(4, br#"{"order":{"id":7},"cents":1250}"#).unwrap(), CURRENT);
    assert_eq!(Placed::decode(2, br#"{"id":7,"cents":1250}"#).unwrap(), CURRENT);
    assert_eq!(Placed::decode(1, br#"{"id":7,"price":"12.50"}"#).unwrap(), CURRENT);
}

#[test]
fn an_unknown_version_is_an_error_with_its_reason() {
    let newer = Placed::decode(5, b"{}").unwrap_err();
    assert!(matches!(newer, DecodeError::UnknownNewer { found: 5, known: 4 }));
    assert_eq!(newer.to_string(), "version 5 is newer than 4, the newest known here");
    let skipped = Placed::decode(3, b"{}").unwrap_err();
    assert!(matches!(skipped, DecodeError::UnknownNewer { found: 3, known: 2 }), "there was no version 3");
    let forgotten = Placed::decode(0, b"{}").unwrap_err();
    assert!(matches!(forgotten, DecodeError::UnknownOlder { found: 0 }));
    let advice = "there is no upcaster from version 0: \
        name the type of that version with `previous = …` on the next version";
    assert_eq!(forgotten.to_string(), advice);
    let refused = Placed::decode(1, br#"{"id":7,"price":"dear"}"#).unwrap_err();
    assert!(matches!(refused, DecodeError::Upcast { from: 1, .. }));
    assert_eq!(refused.to_string(), "the payload of version 1 cannot be converted to the next version");
    assert_eq!(cause(&refused), "invalid digit found in string");
    let shape = Placed::decode(2, br#"{"id":7}"#).unwrap_err();
    assert!(matches!(shape, DecodeError::Payload(_)));
    assert_eq!(shape.to_string(), "the payload does not have the shape of its version");
    assert!(cause(&shape).starts_with("missing field `cents`"), "{}", cause(&shape));
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().expect("the error has a cause").to_string()
}

#[test]
fn key_and_subject_are_the_text_of_fields() {
    assert_eq!((Placed::TYPE, Placed::VERSION, PlacedV2::VERSION), ("orders.placed", 4, 2));
    assert_eq!(CURRENT.key().as_deref(), Some("7"));
    assert_eq!(CURRENT.subject().as_deref(), Some("orders/7"));

    #[derive(Serialize, Deserialize, Event)]
    #[event(type = "shop.opened", version = 1)]
    struct Opened;
    assert_eq!((Opened.key(), Opened.subject()), (None, None));
}

#[test]
fn every_serde_type_can_be_an_event() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, Event)]
    #[event(type = "parcel.moved", version = 1)]
    enum Moved {
        To { shelf: u32 },
        Lost,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize, Event)]
    #[event(type = "parcel.weighed", version = 1, key = 0, subject = 1)]
    struct Weighed(String, u32);
    for moved in [Moved::To { shelf: 3 }, Moved::Lost] {
        assert_eq!(Moved::decode(1, &serde_json::to_vec(&moved).unwrap()).unwrap(), moved);
    }
    let weighed = Weighed("p-1".into(), 12);
    assert_eq!((weighed.key(), weighed.subject()), (Some("p-1".into()), Some("12".into())));
}

#[test]
fn an_event_that_cannot_be_written_as_json_is_an_error_with_its_cause() {
    #[derive(Serialize, Deserialize, Event)]
    #[event(type = "parcel.weighed", version = 1)]
    struct Odd {
        #[serde(serialize_with = "refuse")]
        grams: u32,
    }
    fn refuse<S: serde::Serializer>(_: &u32, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no scales"))
    }
    let error = Draft::of(&Odd { grams: 1 }).unwrap_err();
    assert_eq!(error.to_string(), "the event cannot be written as JSON");
    assert_eq!(cause(&error), "no scales");
}
