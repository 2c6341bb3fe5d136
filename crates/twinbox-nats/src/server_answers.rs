//! Answers of the server that a stream holds as messages.
//!
//! A server answers a publish on the subject that its sender names, and does not check whether the sender may
//! publish there. So whoever may publish one type can have answers stored as messages of any other. They
//! carry no event. As dead letters they would cost a transaction each, so a consumer drops them.
//!
//! No message of a relay is dropped: each has headers. Any other message without headers cannot be read.
use crate::{deliveries::Delivery, header_block::Headers};
use async_nats::jetstream::stream::Info;
use metrics::{Counter, Unit, counter, describe_counter};
use serde::Deserialize;
use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// With the label `consumer`.
const DROPPED: &str = "twinbox_consumer_server_answers_total";
/// The most bytes of an answer. An error can quote a header of the sender: a server takes 64 KiB of headers,
/// and JSON has up to six bytes for one of them.
const ANSWER_BYTES_MAX: usize = 512 * 1024;
/// How often dropped answers are logged, at most.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The header that a server adds to each message of a copied stream.
const STREAM_SOURCE: &str = "Nats-Stream-Source";

/// An answer to a publish, with all the fields that a server sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    stream: Option<String>,
    seq: Option<u64>,
    error: Option<AnswerError>,
    #[serde(rename = "domain")]
    _domain: Option<String>,
    #[serde(rename = "duplicate")]
    _duplicate: Option<bool>,
    #[serde(rename = "val")]
    _counter_value: Option<String>,
    #[serde(rename = "batch")]
    _batch_id: Option<String>,
    #[serde(rename = "count")]
    _batch_size: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerError {
    #[serde(rename = "code")]
    _code: u64,
    #[serde(rename = "err_code")]
    _err_code: Option<u64>,
    #[serde(rename = "description")]
    _description: Option<String>,
}

/// Finds the answers of some streams among the deliveries to a consumer.
pub(crate) struct AnswerFilter {
    streams: Vec<String>,
    consumer: String,
    dropped: Counter,
    log: Mutex<LogRate>,
}

impl AnswerFilter {
    /// `streams`: those of the destination, because one of them can hold answers of another, and those that
    /// they copy.
    pub(crate) fn new(streams: Vec<String>, consumer: &str) -> Self {
        describe_counter!(DROPPED, Unit::Count, "Answers of a NATS server that came as messages");
        Self {
            streams,
            consumer: consumer.to_owned(),
            dropped: counter!(DROPPED, "consumer" => consumer.to_owned()),
            log: Mutex::default(),
        }
    }

    /// Returns whether a delivery is an answer, which the caller drops. Counts it, and logs some.
    pub(crate) fn drops(&self, delivery: &Delivery) -> bool {
        if !self.is_answer(&delivery.headers, &delivery.payload) {
            return false;
        }
        self.dropped.increment(1);
        let due = self.log.lock().unwrap_or_else(PoisonError::into_inner).note(Instant::now());
        if let Some(answers) = due {
            tracing::warn!(
                consumer = self.consumer,
                subject = delivery.subject,
                answers,
                "dropped answers of the server that came as messages: a publisher has named a subject of the \
                 stream as the place for its answers"
            );
        }
        true
    }

    fn is_answer(&self, headers: &Headers, payload: &[u8]) -> bool {
        if !is_bare(headers) || payload.len() > ANSWER_BYTES_MAX || payload.first() != Some(&b'{') {
            return false;
        }
        let Ok(answer) = serde_json::from_slice::<Answer>(payload) else { return false };
        let is_known = |stream: &String| self.streams.contains(stream);
        match answer.error {
            Some(_) => answer.stream.as_ref().is_none_or(is_known),
            None => answer.seq.is_some() && answer.stream.as_ref().is_some_and(is_known),
        }
    }
}

/// Returns the names of the streams that this one copies: it holds their answers too.
pub(crate) fn copied_streams(info: &Info) -> impl Iterator<Item = String> {
    let sources = info.config.sources.iter().flatten();
    info.config.mirror.iter().chain(sources).map(|source| source.name.clone())
}

/// Whether a message has no header of its sender.
fn is_bare(headers: &Headers) -> bool {
    match headers {
        Headers::Read(headers) => headers.iter().all(|(name, _)| AsRef::<str>::as_ref(name) == STREAM_SOURCE),
        Headers::Unreadable { .. } => false,
    }
}

/// Bounds the log lines about answers.
#[derive(Default)]
struct LogRate {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl LogRate {
    /// Counts an answer. If a line is due, returns how many answers it is about.
    fn note(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn is_answer(block: Option<&'static [u8]>, payload: &str) -> bool {
        let streams = ["EVENTS-0", "EVENTS-1"].map(str::to_owned).to_vec();
        let headers = Headers::read(block.map(Bytes::from_static));
        AnswerFilter::new(streams, "billing").is_answer(&headers, payload.as_bytes())
    }

    #[test]
    fn every_answer_of_a_server_to_a_publish_is_known() {
        let long_error = format!(
            "{{\"error\":{{\"code\":400,\"err_code\":10070,\"description\":\"wrong last msg ID: {}\"}},\
             \"stream\":\"EVENTS-0\",\"seq\":0}}",
            "\\u0001".repeat(65_000)
        );
        for answer in [
            r#"{"stream":"EVENTS-0", "seq":1}"#,
            r#"{"stream":"EVENTS-1", "domain":"hub", "seq":18446744073709551615}"#,
            r#"{"stream":"EVENTS-0", "seq":7,"duplicate": true}"#,
            r#"{"stream":"EVENTS-0","seq":7,"val":"12"}"#,
            r#"{"stream":"EVENTS-0","seq":7,"batch":"b-1","count":3}"#,
            r#"{"error":{"code":503,"description":"no quorum"},"stream":"EVENTS-0","seq":0}"#,
            r#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"}}"#,
            &long_error,
        ] {
            assert!(is_answer(None, answer), "{answer:.120}");
        }
        let of_a_copy = b"NATS/1.0\r\nNats-Stream-Source: EVENTS-0 1 > >\r\n\r\n";
        assert!(is_answer(Some(of_a_copy), r#"{"stream":"EVENTS-0","seq":1}"#));
    }

    #[test]
    fn nothing_else_is_taken_for_an_answer() {
        let long = format!(r#"{{"error":{{"code":1,"description":"{}"}}}}"#, "x".repeat(ANSWER_BYTES_MAX));
        for other in [
            "",
            "{}",
            "no event",
            "{\"n\":7}",
            r#"{"stream":"OTHER","seq":1}"#,
            r#"{"stream":"events-0","seq":1}"#,
            r#"{"stream":"EVENTS-0"}"#,
            r#"{"seq":1}"#,
            r#"{"stream":"EVENTS-0","seq":-1}"#,
            r#"{"stream":"EVENTS-0","seq":"1"}"#,
            r#"{"stream":"EVENTS-0","seq":1,"n":7}"#,
            r#"{"stream":"EVENTS-0","seq":1,"seq":2}"#,
            r#"{"stream":"EVENTS-0","seq":1} "x""#,
            r#"{"stream":"EVENTS-0","seq":1}{"#,
            r#" {"stream":"EVENTS-0","seq":1}"#,
            r#"["EVENTS-0",1]"#,
            r#"[{"stream":"EVENTS-0","seq":1}]"#,
            r#"{"type":"orders.placed","stream":"EVENTS-0","seq":1}"#,
            r#"{"error":{"code":400},"stream":"OTHER","seq":0}"#,
            r#"{"error":{"code":400},"order":7}"#,
            r#"{"error":{"code":400,"order":7}}"#,
            r#"{"error":{}}"#,
            r#"{"error":"no"}"#,
            &long,
        ] {
            assert!(!is_answer(None, other), "{other:.120}");
        }
    }

    /// Each message of a relay has headers of a CloudEvent, whatever its payload is.
    #[test]
    fn a_message_with_a_header_is_no_answer() {
        let answer = r#"{"stream":"EVENTS-0","seq":1}"#;
        assert!(is_answer(Some(b"NATS/1.0\r\n\r\n"), answer));
        for block in [
            &b"NATS/1.0\r\nce-specversion: 1.0\r\n\r\n"[..],
            b"NATS/1.0\r\nCE-ID: 1\r\n\r\n",
            b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n",
            b"NATS/1.0\r\nNats-Stream-Source: EVENTS-0 1 > >\r\nce-id: 1\r\n\r\n",
            b"NATS/1.0\r\ntwinbox-replay: 1\r\n\r\n",
            b"NATS/1.0\r\nx:\r\n\r\n",
            b"NATS/1.0\r\na: \xff\r\n\r\n",
            b"",
        ] {
            assert!(!is_answer(Some(block), answer), "{block:?}");
        }
    }

    #[test]
    fn a_flood_of_answers_makes_a_log_line_in_a_minute() {
        let (mut log, start) = (LogRate::default(), Instant::now());
        assert_eq!(log.note(start), Some(1));
        assert!((0..5_000).all(|_| log.note(start + LOG_INTERVAL / 2).is_none()));
        assert_eq!(log.note(start + LOG_INTERVAL), Some(5_001));
        assert_eq!(log.note(start + LOG_INTERVAL), None);
    }
}
