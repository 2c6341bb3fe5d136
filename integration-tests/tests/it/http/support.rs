//! Operations as the tests ask for them.
use crate::consumer::support::{TestDb, World, soon};
use std::time::Duration;
use twinbox::{
    Fingerprinted,
    operation::{Answer, AnswerBody, Begun, Operation, OperationKey, OperationPolicy},
};

pub(super) const SHORT: Duration = Duration::from_millis(200);

pub(super) fn policy(wait: Duration) -> OperationPolicy {
    OperationPolicy { wait, ..OperationPolicy::default() }
}

pub(super) fn key(key: &str) -> OperationKey {
    OperationKey { scope: "POST_/refunds".into(), key: key.into(), ..OperationKey::default() }
}

pub(super) fn asked(body: &str) -> Fingerprinted<'_> {
    Fingerprinted { context: &[b"POST", b"/refunds"], body: body.as_bytes(), excluded: &[] }
}

pub(super) async fn open<DB: TestDb>(world: &World<DB>, key: &OperationKey, body: &str) -> Operation<DB> {
    let begun = soon(world.begin_operation(key, asked(body), &policy(SHORT))).await.unwrap();
    let Begun::Open(operation) = begun else { panic!("{key:?} is taken") };
    operation
}

pub(super) fn answer(body: &str) -> Answer {
    let headers = b"content-type: application/json".to_vec();
    Answer { code: 201, headers, body: AnswerBody::Inline(body.into()), failed: false }
}

pub(super) fn known<T>(begun: Begun<T>) -> Answer {
    let Begun::Known(answer) = begun else { panic!("it is not known") };
    answer
}
