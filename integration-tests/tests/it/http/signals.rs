//! What a request leaves in logs and metrics. R39, R43
use crate::support::{
    cases::cases,
    logged::Lines,
    refunds::{Refunds, Strategy, post},
    stores::TestDb,
};
use integration_tests::refunds::Does::{Answers, Declines};

/// What a request leaves.
const REQUEST: &str = "idempotent request";

async fn each_request_leaves_a_line<DB: TestDb>() {
    let (lines, _recorded) = Lines::record();
    let app = Refunds::<DB>::new(Strategy::Tx).await;
    let seen = std::cell::Cell::new(0);
    let one = async |key: &str, amount, does| {
        app.refund(key, amount, does).await;
        let before = seen.replace(seen.get() + 1);
        let lines = lines.saying(REQUEST);
        assert_eq!(lines.len(), before + 1, "{lines:?}");
        lines[before].clone()
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
}

/// R17: whoever writes outside of the key's transaction is named
async fn a_route_that_never_uses_its_transaction_is_named<DB: TestDb>() {
    let (lines, _recorded) = Lines::record();
    let app = Refunds::<DB>::new(Strategy::Tx).await;
    app.send(post("/unused", "a").body("".into()).unwrap()).await;
    let said = lines.saying("did not use an `IdemTx`");
    assert_eq!(said[0]["fields"]["scope"], "POST_/unused");
}

cases! { all: [each_request_leaves_a_line, a_route_that_never_uses_its_transaction_is_named] }
