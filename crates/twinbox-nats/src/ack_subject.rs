//! The subject for the ack of a delivery, in which the server says where the message comes from.

/// The first words of these subjects.
pub(crate) const PREFIX: &str = "$JS.ACK.";

/// Where a delivery comes from.
#[derive(Debug, PartialEq)]
pub(crate) struct Place<'a> {
    pub(crate) stream: &'a str,
    /// How many times the consumer has delivered the message.
    pub(crate) deliveries: u64,
    pub(crate) stream_sequence: u64,
    pub(crate) consumer_sequence: u64,
    /// When the stream stored the message, in nanoseconds since 1970.
    pub(crate) stored_nanos: i128,
    /// How many messages the consumer has still to deliver.
    pub(crate) pending: u64,
}

/// Reads both forms of NATS ADR-15: seven words, or nine and more of which the first two name domain and
/// account. None: the subject is not for an ack.
pub(crate) fn place(subject: &str) -> Option<Place<'_>> {
    let words = Vec::from_iter(subject.strip_prefix(PREFIX)?.split('.'));
    let words = match words.len() {
        7 => &words[..],
        9.. => &words[2..],
        _ => return None,
    };
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some(Place {
        stream: words.first()?,
        deliveries: number(2)?,
        stream_sequence: number(3)?,
        consumer_sequence: number(4)?,
        stored_nanos: words.get(5)?.parse().ok()?,
        pending: number(6)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let expected = Place {
            stream: "EVENTS",
            deliveries: 2,
            stream_sequence: 30,
            consumer_sequence: 4,
            stored_nanos: 1_789_000_000_123_456_789,
            pending: 5,
        };
        let short = "$JS.ACK.EVENTS.billing.2.30.4.1789000000123456789.5";
        assert_eq!(place(short).as_ref(), Some(&expected));
        let long = "$JS.ACK._.ACCOUNT.EVENTS.billing.2.30.4.1789000000123456789.5.token";
        assert_eq!(place(long).as_ref(), Some(&expected));
        for other in ["", "$JS.ACK.", "_INBOX.a", "$JS.ACK.E.b.2.30.4.x.5", "$JS.ACK.E.b.2.30.4.1"] {
            assert_eq!(place(other), None);
        }
    }
}
