//! How often a request is read to be compared with others.
use super::both::with_both;
use crate::support::{
    cases::cases,
    operations::{SHORT, answer, asked as asked_for, key, known, open, policy},
    refunds::{Refunds, Strategy, asked, post},
    stores::{TestDb, World},
};
use integration_tests::refunds::Does::Answers;
use std::convert::identity;
use twinbox::{http::Idempotency, operation::FingerprintAlgorithm};
use twinbox_core::test_signal;

/// The canonical forms of JSON that this thread has made. A test has one thread.
fn forms() -> u64 {
    test_signal::passed("fingerprint.canonical")
}

fn mismatch() -> (u16, String) {
    (409, "CONFLICT.idempotency.payload_mismatch".to_owned())
}

/// Sends a request, the same again, and another one with its key. Each makes so many canonical forms.
async fn makes<DB: TestDb>(each: u64, set: impl Fn(Idempotency<DB>) -> Idempotency<DB>) {
    with_both::<DB>(set, async |app, strategy| {
        let refund = async |amount| {
            let before = forms();
            let got = app.refund("a", amount, Answers).await;
            assert_eq!(forms() - before, each, "{amount} {strategy:?}");
            got
        };
        let first = refund(1).await;
        refund(1).await.is_replayed(&first);
        assert_eq!(refund(2).await.problem(), mismatch());
    })
    .await;
}

async fn a_request_is_put_into_canonical_form_once<DB: TestDb>() {
    makes::<DB>(1, identity).await;
}

async fn the_form_of_the_rfc_is_made_of_the_same_canonical_form<DB: TestDb>() {
    makes::<DB>(1, |layer| layer.algorithm(FingerprintAlgorithm::StrictJson).exclude("/at")).await;
}

/// On Postgres a deployment may just be changing the algorithm, and copies of a request wait for each other.
async fn a_route_that_compares_bytes_makes_no_form_that_nobody_needs<DB: TestDb>() {
    let forms = u64::from(DB::CAPABILITIES.early_mismatch);
    makes::<DB>(forms, |layer| layer.algorithm(FingerprintAlgorithm::Raw)).await;
}

/// A deployment has changed which members count.
async fn a_key_that_was_stored_by_another_comparison_costs_one_form_more<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let body = r#"{"n":1,"at":2}"#;
    open(&world, &key("a"), body).await.commit(&answer("1")).await.unwrap();
    let request = asked_for(body).excluding(&["/at".to_owned()]);
    let (keys, before) = (world.idempotency_keys(), forms());
    for _ in 0..2 {
        assert_eq!(known(keys.begin(&key("a"), &request, &policy(SHORT)).await.unwrap()), answer("1"));
        assert_eq!(keys.find(&key("a"), &request).await.unwrap(), Some(answer("1")));
    }
    assert_eq!(forms() - before, 2);
}

async fn another_thread_reads_a_large_request<DB: TestDb>() {
    let app = Refunds::<DB>::new(Strategy::Tx).await;
    let (spaces, before) = (" ".repeat(65 * 1024), forms());
    let send = async |body: String| app.send(post("/refunds", "a").body(body.into()).unwrap()).await;
    let first = send(asked(1, Answers) + &spaces).await;
    send(spaces.clone() + &asked(1, Answers)).await.is_replayed(&first);
    assert_eq!(send(asked(2, Answers) + &spaces).await.problem(), mismatch());
    assert_eq!((forms() - before, app.made().await), (0, 1));
}

cases! {
    all: [
        a_request_is_put_into_canonical_form_once,
        the_form_of_the_rfc_is_made_of_the_same_canonical_form,
        a_route_that_compares_bytes_makes_no_form_that_nobody_needs,
        a_key_that_was_stored_by_another_comparison_costs_one_form_more,
        another_thread_reads_a_large_request,
    ]
}
