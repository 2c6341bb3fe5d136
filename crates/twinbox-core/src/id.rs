//! Message ids and derived ids: a retry derives the same id again.
//!
//! [`derive()`] is SHA-256 over a namespace and length-prefixed parts, written as a UUID of version 8 (RFC
//! 9562 §5.8). The lengths keep `("ab", "c")` and `("a", "bc")` apart. The vectors in this module's tests are
//! public: an implementation in another language must produce the same ids.
use crate::timestamp::Timestamp;
use sha2::{Digest, Sha256};
use std::fmt;
use uuid::Uuid;

/// The identity of a message, by which the inbox removes duplicates.
///
/// It is derived from the CloudEvents attributes `source`, `type` and `id`, for events of this service and of
/// others. The type is a part of it so that whoever may publish another type cannot use up the id of a
/// message to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Uuid);

impl MessageId {
    /// Derives the message id of the event `id` of the service `source`.
    pub fn of(source: &str, event_type: &str, id: &str) -> Self {
        Self(derive("message/1", &[source.as_bytes(), event_type.as_bytes(), id.as_bytes()]))
    }

    /// Restores a message id from the UUID under which it was stored.
    pub const fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    /// Returns the message id as a UUID.
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Derives a UUID from a namespace and parts, always the same one from the same parts.
///
/// The id is a UUIDv8 of the first 16 bytes of SHA-256(`namespace` ‖ for each part: its length as a
/// big-endian u32 ‖ the part). It is not a secret: the parts are enough to compute it.
///
/// ```
/// use twinbox_core::id::derive;
///
/// let id = derive("invoice/1", &[b"shop", b"order-7"]);
/// assert_eq!(id, derive("invoice/1", &[b"shop", b"order-7"]));
/// assert_ne!(id, derive("invoice/1", &[b"shoporder-", b"7"]));
/// ```
pub fn derive(namespace: &str, parts: &[&[u8]]) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest(namespace, parts)[..16]);
    Uuid::new_v8(bytes)
}

/// Makes a new event id (UUIDv7), for an event that is published outside of a handler.
pub fn new_event_id() -> String {
    Uuid::now_v7().to_string()
}

/// Derives the id of an event that `consumer` publishes while it handles the message `parent`.
///
/// `nth` counts the events of that type and key, from 1. A handler that runs again publishes the same ids.
pub fn derived_event_id(
    source: &str,
    parent: MessageId,
    consumer: &str,
    event_type: &str,
    key: Option<&str>,
    nth: u32,
) -> String {
    let (source, parent, nth) = (source.as_bytes(), parent.0, nth.to_be_bytes());
    let mut parts = vec![source, parent.as_bytes(), consumer.as_bytes(), event_type.as_bytes(), &nth];
    parts.extend(key.map(str::as_bytes));
    derive("caused/1", &parts).to_string()
}

/// Derives the id of the row that an operation inserts, from its service, tenant, principal, scope and key.
///
/// Used as a primary key, of a payment for example, it makes a second insert fail even after the key of the
/// operation was purged.
pub fn operation_row_id([service, tenant, principal, scope, key]: [&[u8]; 5]) -> Uuid {
    derive("domain/1", &[service, tenant, principal, scope, key])
}

/// Replaces the first 48 bits of `id` by the time of the UUIDv7 `key`, so that an index grows at one end.
///
/// Returns `id` unchanged if `key` has another version, or if its time is more than a day from `now`.
pub fn with_time_of(id: Uuid, key: Uuid, now: Timestamp) -> Uuid {
    const DAY: u64 = 24 * 3600 * 1000;
    let time = key.as_u128() >> 80;
    let now = u64::try_from(now.as_micros() / 1000).unwrap_or_default();
    let is_near = u64::try_from(time).is_ok_and(|time| time.abs_diff(now) <= DAY);
    if key.get_version_num() != 7 || !is_near {
        return id;
    }
    Uuid::from_u128(time << 80 | id.as_u128() & (u128::MAX >> 48))
}

/// Returns the partition of a message: by its key, or by its message id if it has none.
pub fn partition(key: Option<&str>, id: MessageId, partitions: u32) -> u32 {
    let digest = match key {
        Some(key) => digest("partition/1", &[key.as_bytes()]),
        None => digest("partition/1", &[id.0.as_bytes()]),
    };
    let mut head = [0; 8];
    head.copy_from_slice(&digest[..8]);
    let n = u64::from_be_bytes(head) % u64::from(partitions.max(1));
    u32::try_from(n).expect("a remainder is below its u32 divisor")
}

fn digest(namespace: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(namespace);
    for part in parts {
        hash.update(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The public vectors. A change of one changes the identity of every stored message.
    #[test]
    fn vectors() {
        assert_eq!(derive("message/1", &[]).to_string(), "004065c3-b99b-860c-9bb2-7e89258ebf19");
        let order = MessageId::of("shop", "orders.placed", "order-1");
        assert_eq!(order.to_string(), "92876d08-a609-80d2-99d2-0996cca401b1");
        let event =
            |key, nth| derived_event_id("shop", order, "billing.invoice", "billing.invoice-issued", key, nth);
        assert_eq!(event(None, 1), "65081459-9532-8afa-abfa-67c7b811d620");
        assert_eq!(event(Some(""), 1), "c096e5f1-1cdf-8b7c-a947-4761c4237cc2");
        assert_eq!(event(Some("o-1"), 2), "2e8e3060-a933-8414-9da2-43b900387ce0");
        let payment = operation_row_id([
            b"shop",
            b"acme",
            b"u-1",
            b"POST_/v1/payments",
            b"8a7c1f30-5b62-4e19-9f4d-2f9d4ecf3a11",
        ]);
        assert_eq!(payment.to_string(), "82cfc642-494e-83ad-ba87-14085f118d34");
        assert_eq!(partition(Some("o-1"), order, 16), 14);
        assert_eq!(partition(None, order, 16), 13);
    }

    /// D21
    #[test]
    fn an_ordered_id_has_the_time_of_its_key() {
        let key: Uuid = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let id = operation_row_id([b"shop", b"", b"", b"POST_/v1/payments", key.as_bytes()]);
        let day = 24 * 3600 * 1000;
        let at = |millis: i64| Timestamp::from_micros((0x0189_0a5d_ac96 + millis) * 1000);
        let ordered_id = with_time_of(id, key, at(0));
        assert!(ordered_id.to_string().starts_with("01890a5d-ac96-8"));
        assert_eq!(ordered_id.as_bytes()[6..], id.as_bytes()[6..]);
        assert_eq!(
            (with_time_of(id, key, at(day)), with_time_of(id, key, at(-day))),
            (ordered_id, ordered_id)
        );
        assert_eq!((with_time_of(id, key, at(day + 1)), with_time_of(id, key, at(-day - 1))), (id, id));
        assert_eq!(with_time_of(id, Uuid::from_u128(key.as_u128() ^ 3 << 76), at(0)), id);
    }

    #[test]
    fn lengths_keep_parts_apart() {
        assert_ne!(derive("n/1", &[b"ab", b"c"]), derive("n/1", &[b"a", b"bc"]));
        assert_ne!(derive("n/1", &[b"a"]), derive("n/1", &[b"a", b""]));
    }
}
