//! The programs of an application, and what each is fed with.
mod console;
mod consumers;
mod requests;
mod senders;
mod statements;

pub(super) use console::Console;
pub(super) use consumers::{LogConsumer, NatsConsumer};
pub(super) use requests::Web;
pub(super) use senders::{EffectDispatcher, Jobs, Mover, RelayProgram};
pub(super) use statements::OF_PROGRAMS;

use crate::support::stores::{TestDb, World};
use futures::future::BoxFuture;
use std::time::Duration;
use twinbox::{
    CancellationToken, Store,
    ops::{
        AuditIntent, Ops,
        dead_letters::{DeadLetterAction, DeadLetterFilter},
        replays::{NewReplay, Selection},
    },
};

/// A program that does what it is fed with.
pub(super) trait Program<DB: TestDb>: Send + Sync + 'static {
    const NAME: &str;

    async fn new(world: &World<DB>) -> Self;

    /// Runs it until it is stopped.
    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()>;

    /// Gives it the next work, of each kind, with keys of its own.
    async fn feed(&self, world: &World<DB>, n: i64);

    /// Returns whether the plain work of this number is done.
    async fn is_done(&self, world: &World<DB>, n: i64) -> bool;
}

/// Lets operators act on the dead letters of a consumer or destination: one by one, or on all that match.
async fn act_on_dead_letters<DB: TestDb>(
    ops: &Ops<DB>,
    filter: &DeadLetterFilter,
    action: DeadLetterAction,
    all: bool,
) {
    if all {
        let plan = ops.plan_bulk_action(action, filter).await.unwrap();
        let intent = AuditIntent { operator: "ada", command: "x", target: "y", reason: None };
        // Nothing may match at the moment.
        let _ = ops.make_bulk_action(&plan, Duration::ZERO, &intent).await;
    } else {
        let groups = ops.dead_letter_groups(filter).await.unwrap();
        let ids = Vec::from_iter(groups.iter().map(|group| group.newest.id.clone()));
        ops.redrive(&ids, Duration::ZERO).await.unwrap();
    }
}

/// Makes a replay of a key. A reader that has not noted yet that it came so far has nothing to repeat.
async fn replay<DB: TestDb>(ops: &Ops<DB>, reader: &str, key: String, new: NewReplay) {
    let plan = ops.plan_replay(reader, &Selection::new().key(Some(key))).await.unwrap();
    let _ = ops.make_replay(&plan, new).await;
}
