//! What a request leaves in logs and metrics. R39, R43, REQUIREMENTS §4.11
use super::shop::{Refunds, Strategy, post};
use crate::consumer::support::{TestDb, cases, record};
use integration_tests::refunds::Does::{Answers, Declines};
use std::{
    io,
    sync::{Arc, Mutex},
};
use tracing_subscriber::fmt::MakeWriter;

/// Lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    /// What requests have left since the last look.
    fn requests(&self) -> Vec<serde_json::Value> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let lines = String::from_utf8(bytes).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|line| line["fields"]["message"] == "idempotent request").collect()
    }
}

async fn each_request_leaves_a_line<DB: TestDb>() {
    let lines = Lines::default();
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::INFO).with_writer(lines.clone());
    let _recorded = record(subscriber.finish());
    let app = Refunds::<DB>::new(Strategy::Tx).await;
    let one = async |key: &str, amount, does| {
        app.refund(key, amount, does).await;
        let mut lines = lines.requests();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    };
    let created = one("refund:ch_9ab", 1, Answers).await;
    let fields = &created["fields"];
    assert_eq!((&fields["outcome"], &fields["status"]), (&"created".into(), &201.into()));
    assert_eq!(fields["scope"], "POST_/refunds");
    let key = fields["idempotency_key"].as_str().unwrap();
    assert!(key.len() == 8 && fields["payload_hash"].as_str().unwrap().len() == 8);
    assert!(!created.to_string().contains("ch_9ab"), "keys tell who paid for what: {created}");
    assert_eq!((&created["span"]["name"], &created["span"]["attempt"]), (&"idempotency".into(), &1.into()));
    assert_eq!(created["span"]["idempotency_key"], key);
    let replayed = one("refund:ch_9ab", 1, Answers).await;
    assert_eq!(
        (&replayed["fields"]["outcome"], &replayed["fields"]["idempotency_key"]),
        (&"replayed".into(), &key.into())
    );
    let conflict = one("refund:ch_9ab", 2, Answers).await;
    assert_eq!(conflict["fields"]["error_code"], "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(one("other", 2, Declines).await["fields"]["outcome"], "undone");
    assert_eq!(one("", 2, Declines).await["fields"]["error_code"], "VALIDATION.idempotency.missing_key");
    let raw = Refunds::<DB>::with(Strategy::Tx, |layer| layer.log_raw_keys()).await;
    raw.refund("refund:ch_9ab", 1, Answers).await;
    assert_eq!(lines.requests()[0]["fields"]["idempotency_key"], "refund:ch_9ab");
}

/// R17: whoever writes outside of the key's transaction is named
async fn a_route_that_never_uses_its_transaction_is_named<DB: TestDb>() {
    let lines = Lines::default();
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::ERROR).with_writer(lines.clone());
    let _recorded = record(subscriber.finish());
    let app = Refunds::<DB>::new(Strategy::Tx).await;
    app.send(post("/unused", "a").body("".into()).unwrap()).await;
    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(said.contains("takes no `IdemTx`") && said.contains("POST_/unused"), "{said}");
}

cases! { both: [each_request_leaves_a_line, a_route_that_never_uses_its_transaction_is_named] }
