//! Subjects: `<prefix>.<partition>.<type>`.
use std::fmt::Write as _;
use twinbox_core::{Message, id, limits, message};

/// Returns whether a stream can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    is_prefix(text) && !text.contains('.')
}

/// Returns whether subjects can begin with this text.
pub(crate) fn is_prefix(text: &str) -> bool {
    text.len() <= limits::NAME_BYTES_MAX && message::is_type_name(text)
}

/// Returns whether the subjects of an API of JetStream can begin with this text: as a prefix, and `$` too.
pub(crate) fn is_api_prefix(text: &str) -> bool {
    text.len() <= limits::NAME_BYTES_MAX && message::is_type_name(&text.replace('$', "_"))
}

/// Returns whether a subject can hold this type. The limit of its length matters: a server closes a
/// connection that sends a line of more than 4 KiB.
pub(crate) fn is_type(text: &str) -> bool {
    text.len() <= limits::TYPE_BYTES_MAX && message::is_type_name(text)
}

/// Returns the subject of a message, or None if a subject cannot hold its type.
pub(crate) fn of_message(prefix: &str, partitions: u32, message: &Message) -> Option<String> {
    if !is_type(&message.event_type) {
        return None;
    }
    let partition = id::partition(message.key.as_deref(), message.message_id(), partitions);
    let mut subject = String::with_capacity(prefix.len() + message.event_type.len() + 6);
    write!(subject, "{prefix}.{partition}.{}", message.event_type).ok()?;
    Some(subject)
}

/// Returns the filter for a type in all partitions.
pub(crate) fn type_filter(prefix: &str, event_type: &str) -> String {
    format!("{prefix}.*.{event_type}")
}

/// Returns the filter for a type in one partition.
pub(crate) fn partition_filter(prefix: &str, partition: u32, event_type: &str) -> String {
    format!("{prefix}.{partition}.{event_type}")
}

/// The subject of a message in the stream. The server has checked that its publisher may publish to it, and
/// it has checked nothing in the headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredSubject<'a> {
    text: &'a str,
    prefix: &'a str,
    /// The number of partitions. None: the reader does not depend on them.
    partitions: Option<u32>,
}

impl<'a> StoredSubject<'a> {
    /// A subject for a reader that keeps the order of keys in each partition.
    pub(crate) fn partitioned(text: &'a str, prefix: &'a str, partitions: u32) -> Self {
        Self { text, prefix, partitions: Some(partitions) }
    }

    pub(crate) fn unordered(text: &'a str, prefix: &'a str) -> Self {
        Self { text, prefix, partitions: None }
    }

    /// Returns the tokens of the partition and the type.
    fn split(&self) -> Option<(&'a str, &'a str)> {
        self.text.strip_prefix(self.prefix)?.strip_prefix('.')?.split_once('.')
    }

    /// Returns the type that the publisher may publish.
    pub(crate) fn event_type(&self) -> Option<&'a str> {
        self.split().map(|(_, event_type)| event_type).filter(|event_type| is_type(event_type))
    }

    /// Compares what the headers say with the subject.
    ///
    /// # Errors
    /// The type is another one, or the key belongs to another partition.
    pub(crate) fn check(&self, message: &Message) -> Result<(), String> {
        let Some((partition, event_type)) = self.split() else {
            return Err(format!("the subject is not below `{}`, or names no type", self.prefix));
        };
        if event_type != message.event_type {
            return Err("the CloudEvents attribute `type` is not the type of the subject".to_owned());
        }
        let (Some(partitions), Some(key)) = (self.partitions, &message.key) else { return Ok(()) };
        let of_key = id::partition(Some(key), message.message_id(), partitions);
        if partition.parse::<u32>() != Ok(of_key) {
            return Err(
                "the CloudEvents attribute `partitionkey` belongs to another partition than that of \
                        the subject"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Returns the filter for everything below the prefix.
pub(crate) fn all(prefix: &str) -> String {
    format!("{prefix}.>")
}

/// Returns whether a subject below `prefix` can match `pattern`.
pub(crate) fn overlaps(pattern: &str, prefix: &str) -> bool {
    let mut tokens = pattern.split('.');
    for word in prefix.split('.') {
        match tokens.next() {
            Some(">") => return true,
            Some(token) if token == "*" || token == word => {}
            _ => return false,
        }
    }
    tokens.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use twinbox_core::Timestamp;

    fn message(event_type: &str, key: Option<&str>) -> Message {
        Message {
            id: "order-1".into(),
            source: "shop".into(),
            event_type: event_type.into(),
            version: 1,
            key: key.map(str::to_owned),
            subject: None,
            time: Timestamp::from_micros(0),
            sequence: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            content_type: message::JSON.into(),
            headers: Vec::new(),
            payload: Bytes::new(),
        }
    }

    fn subject(event_type: &str, key: Option<&str>) -> Option<String> {
        let message = message(event_type, key);
        of_message("events", 16, &message)
    }

    #[test]
    fn the_key_or_else_the_id_selects_the_partition() {
        assert_eq!(subject("orders.placed", Some("o-1")).unwrap(), "events.14.orders.placed");
        assert_eq!(subject("orders.placed", None).unwrap(), "events.13.orders.placed");
    }

    #[test]
    fn an_invalid_type_has_no_subject() {
        for bad in ["", "*", ">", "a.>", "a b", "a..b", "a\r\nPUB x 0\r\n", &"a".repeat(129)] {
            assert_eq!(subject(bad, None), None, "{bad:?}");
        }
    }

    #[test]
    fn patterns_overlap_a_prefix() {
        for pattern in [">", "events.>", "events.*.>", "*.>", "events.3.orders.*", "events.*"] {
            assert!(overlaps(pattern, "events"), "{pattern}");
        }
        for pattern in ["events", "event.>", "*", "other.>", "events.a"] {
            assert!(!overlaps(pattern, "events.b"), "{pattern}");
        }
        assert!(overlaps("a.*.>", "a.b") && !overlaps("a.*", "a.b"));
    }

    proptest! {
        /// For any row of any producer, a subject has no wildcard and is one line.
        #[test]
        fn no_type_becomes_a_wildcard(event_type in any::<String>(), key in any::<Option<String>>()) {
            if let Some(subject) = subject(&event_type, key.as_deref()) {
                prop_assert!(!subject.contains(['*', '>', ' ', '\r', '\n', '\t']));
                prop_assert!(subject.split('.').all(|token| !token.is_empty()));
            }
        }
    }
}
