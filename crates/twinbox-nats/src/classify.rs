//! Classifies failed publishes: whether the server or the message is at fault, and whether a retry may help.
use async_nats::jetstream::{self, ErrorCode, context};
use std::error::Error;
use twinbox_core::{PublishError, PublishErrorKind};

/// The leader of a stream has a message with this name that its replicas do not have yet, or that an earlier
/// leader lost. Of a lost one it says so until the duplicate window is over.
const DUPLICATE_IN_PROCESS: ErrorCode = ErrorCode(10158);

/// The error text of a full subject. The other subjects of the stream take messages.
const SUBJECT_IS_FULL: &str = "maximum messages per subject exceeded";

/// Returns the code under which a JetStream error is stored and counted.
pub(crate) fn code_of(error: &jetstream::Error) -> String {
    match error.error_code() {
        ErrorCode(0) => format!("nats.{}", error.code()),
        ErrorCode(code) => format!("nats.{code}"),
    }
}

/// Returns the kind of a JetStream error.
pub(crate) fn kind_of(error: &jetstream::Error) -> PublishErrorKind {
    use ErrorCode as C;
    use PublishErrorKind as K;
    match error.error_code() {
        C::STREAM_STORE_FAILED if error.to_string().contains(SUBJECT_IS_FULL) => K::Unroutable,
        C::STREAM_MESSAGE_EXCEEDS_MAXIMUM | C::STREAM_HEADER_EXCEEDS_MAXIMUM => K::RefusedForGood,
        // A full stream, disk, memory or account, or a cluster without a leader, affects every message.
        C::STREAM_STORE_FAILED
        | C::INSUFFICIENT_RESOURCES
        | C::STORAGE_RESOURCES_EXCEEDED
        | C::MEMORY_RESOURCES_EXCEEDED
        | C::ACCOUNT_RESOURCES_EXCEEDED
        | C::STREAM_MAX_STREAM_BYTES_EXCEEDED
        | C::TEMP_STORAGE_FAILED
        | C::STREAM_TOO_MANY_REQUESTS
        | C::JETSTREAM_NOT_ENABLED
        | C::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
        | C::CLUSTER_INCOMPLETE
        | C::CLUSTER_NO_PEERS
        | C::CLUSTER_NOT_ACTIVE
        | C::CLUSTER_NOT_ASSIGNED
        | C::CLUSTER_NOT_AVAILABLE
        | C::CLUSTER_NOT_LEADER
        | C::RAFT_GENERAL
        | C::STREAM_OFFLINE
        | C::STREAM_OFFLINE_REASON => K::Unavailable,
        DUPLICATE_IN_PROCESS => K::InProcess,
        C::STREAM_NOT_FOUND | C::STREAM_NOT_MATCH | C::STREAM_SEALED | C::NO_ACCOUNT => K::Misconfigured,
        _ if error.code() == 503 => K::Unavailable,
        _ => K::RefusedForNow,
    }
}

/// Classifies a publish that failed before anything was sent.
pub(crate) fn unsent(error: context::PublishError) -> PublishError {
    use PublishErrorKind as K;
    use context::PublishErrorKind as E;
    let (kind, code) = match error.kind() {
        E::MaxPayloadExceeded => (K::RefusedForGood, "nats.max_payload"),
        E::MaxAckPending => (K::Unavailable, "nats.in_flight"),
        E::TimedOut => (K::Unavailable, "nats.stalled"),
        // The subject is valid, so the remaining cause is a client whose connection has ended.
        _ => (K::Unavailable, "nats.disconnected"),
    };
    PublishError::new(kind, code).with_source(error)
}

/// Classifies a publish that was sent and not acknowledged.
pub(crate) fn unacknowledged(error: context::PublishError) -> PublishError {
    use PublishErrorKind as K;
    use context::PublishErrorKind as E;
    let jetstream = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    let (kind, code) = match (error.kind(), jetstream) {
        (_, Some(error)) => (kind_of(error), code_of(error)),
        (E::StreamNotFound, None) => (K::Unroutable, "nats.no_stream".to_owned()),
        (E::BrokenPipe, None) => (K::InDoubt, "nats.disconnected".to_owned()),
        (E::TimedOut, None) => (K::Unanswered, "nats.timeout".to_owned()),
        _ => (K::Unanswered, "nats.unreadable_ack".to_owned()),
    };
    PublishError::new(kind, code).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use PublishErrorKind as K;
    use context::PublishErrorKind as E;

    fn jetstream(status: usize, code: u64) -> jetstream::Error {
        let text = serde_json::json!({"code": status, "err_code": code, "description": "user:secret@host"});
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn jetstream_errors_are_classified() {
        let table = [
            (400, 10054, K::RefusedForGood),
            (400, 10097, K::RefusedForGood),
            (503, 10077, K::Unavailable),
            (503, 10023, K::Unavailable),
            (500, 10047, K::Unavailable),
            (500, 10028, K::Unavailable),
            (400, 10002, K::Unavailable),
            (400, 10167, K::Unavailable),
            (503, 10076, K::Unavailable),
            (503, 10039, K::Unavailable),
            (503, 10008, K::Unavailable),
            (500, 10009, K::Unavailable),
            (500, 10118, K::Unavailable),
            (404, 10059, K::Misconfigured),
            (400, 10060, K::Misconfigured),
            (400, 10109, K::Misconfigured),
            (400, 10070, K::RefusedForNow),
            (400, 10071, K::RefusedForNow),
            (409, 10158, K::InProcess),
            (503, 19999, K::Unavailable),
            (400, 19999, K::RefusedForNow),
        ];
        for (status, code, kind) in table {
            let error = context::PublishError::with_source(E::Other, jetstream(status, code));
            let error = unacknowledged(error);
            assert_eq!((error.kind(), error.code()), (kind, format!("nats.{code}").as_str()));
            assert!(!error.to_string().contains("secret"));
        }
        assert_eq!(code_of(&jetstream(503, 0)), "nats.503");
        let full = serde_json::json!({"code": 503, "err_code": 10077, "description": SUBJECT_IS_FULL});
        assert_eq!(kind_of(&serde_json::from_value(full).unwrap()), K::Unroutable);
    }

    #[test]
    fn client_errors_after_sending_are_classified() {
        let table = [
            (E::TimedOut, K::Unanswered, "nats.timeout"),
            (E::BrokenPipe, K::InDoubt, "nats.disconnected"),
            (E::StreamNotFound, K::Unroutable, "nats.no_stream"),
            (E::Other, K::Unanswered, "nats.unreadable_ack"),
        ];
        for (client, kind, code) in table {
            let error = unacknowledged(context::PublishError::new(client));
            assert_eq!((error.kind(), error.code()), (kind, code));
        }
        let wrong = context::PublishError::with_source(E::WrongLastSequence, jetstream(400, 10071));
        assert_eq!(unacknowledged(wrong).kind(), K::RefusedForNow);
    }

    #[test]
    fn client_errors_before_sending_are_classified() {
        let table = [
            (E::MaxPayloadExceeded, K::RefusedForGood, "nats.max_payload"),
            (E::MaxAckPending, K::Unavailable, "nats.in_flight"),
            (E::TimedOut, K::Unavailable, "nats.stalled"),
            (E::Other, K::Unavailable, "nats.disconnected"),
        ];
        for (client, kind, code) in table {
            let error = unsent(context::PublishError::new(client));
            assert_eq!((error.kind(), error.code()), (kind, code));
        }
    }
}
