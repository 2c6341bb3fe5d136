//! The programs of an application, and what each is fed with.
mod consumers;
mod requests;
mod senders;

pub(super) use consumers::{LogConsumer, NatsConsumer};
pub(super) use requests::Web;
pub(super) use senders::{EffectDispatcher, Jobs, Mover, RelayProgram};

use crate::support::stores::World;
use futures::future::BoxFuture;
use sqlx::Postgres;
use twinbox::{CancellationToken, Store};

/// A program that does what it is fed with.
pub(super) trait Program: Send + Sync + 'static {
    const NAME: &str;

    async fn new(world: &World<Postgres>) -> Self;

    /// Runs it until it is stopped.
    fn run(&self, store: Store<Postgres>, stop: CancellationToken) -> BoxFuture<'static, ()>;

    /// Gives it the next work, of each kind, with keys of its own.
    async fn feed(&self, world: &World<Postgres>, n: i64);

    /// Returns whether the plain work of this number is done.
    async fn is_done(&self, world: &World<Postgres>, n: i64) -> bool;
}
