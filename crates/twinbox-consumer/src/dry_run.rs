//! What a replay would come to, without anything coming of it.
use crate::{
    Consumer, Error, ErrorKind, attempt,
    handler::Handler,
    start::{OpenStarts, Runtime},
};
use tokio_util::sync::CancellationToken;
use twinbox_core::{Message, MessageId};
use twinbox_sql::{
    Dialect, Store,
    inbox::Claimed,
    replay::{NewReplay, ReplayPlan},
};

/// Messages that are read at a time.
const PAGE: u32 = 200;

/// What a delivery would come to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DryOutcome {
    /// Its handler runs, and its transaction can be committed.
    WouldRun {
        /// Events that it publishes with it.
        published: u32,
    },
    /// Nothing runs.
    WouldSkip {
        /// Why not.
        because: &'static str,
    },
    /// Its attempt fails: it comes again, or is given up.
    WouldFail {
        /// With this error.
        error: String,
    },
}

/// One delivery of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DryDelivery {
    /// To whom.
    pub consumer: &'static str,
    /// The message, as the inbox knows it.
    pub message_id: MessageId,
    /// The message, as its source knows it.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// What would come of it.
    pub outcome: DryOutcome,
}

/// How many deliveries of a dry run would come to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DryRun {
    /// Handlers that would run.
    pub would_run: u64,
    /// Deliveries that nothing would run for.
    pub would_skip: u64,
    /// Attempts that would fail.
    pub would_fail: u64,
}

impl DryRun {
    fn count(&mut self, outcome: &DryOutcome) {
        *match outcome {
            DryOutcome::WouldRun { .. } => &mut self.would_run,
            DryOutcome::WouldSkip { .. } => &mut self.would_skip,
            DryOutcome::WouldFail { .. } => &mut self.would_fail,
        } += 1;
    }
}

impl<DB: Dialect, S: Send + Sync + 'static> Consumer<DB, S> {
    /// Runs the handlers on what was planned in the log of `from`, as [`Store::make_replay`] would have them run, one
    /// delivery after the other, each in a transaction that is rolled back. `see` is told of each as it comes to its end.
    ///
    /// Nothing is written, claimed, counted or acknowledged, and what handlers publish goes nowhere. What they do outside of
    /// the database happens, unless they ask [`Tx::is_dry_run`](twinbox_sql::Tx::is_dry_run) first. Each delivery is run by
    /// itself, on the tables as they are: one that needs what an earlier one would have written fails. A message that
    /// arrives at the same time waits for its turn. Constraints that are deferred to the end are checked on Postgres only.
    /// A handler that ends its process ends this one, and leaves nothing behind.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the replay is for a consumer that is not registered here. [`ErrorKind::Store`]: a
    /// database refused or is away; what was seen before holds.
    pub async fn dry_run<From: Dialect>(
        &self,
        from: &Store<From>,
        plan: &ReplayPlan,
        replay: &NewReplay,
        mut see: impl FnMut(DryDelivery),
    ) -> Result<DryRun, Error> {
        let concerned = |handler: &&Handler<DB, S>| {
            replay.consumer().is_none_or(|consumer| handler.policy.consumer == consumer)
        };
        if let (Some(consumer), None) = (replay.consumer(), self.handlers.iter().find(concerned)) {
            let what = format!("the replay is for the consumer {consumer:?}, which has no handler here");
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let (mut counts, mut after) = (DryRun::default(), None);
        loop {
            let page = from.planned_messages(plan, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(counts) };
            after = last.sequence;
            for message in &page {
                let handlers = self.handlers.iter().filter(concerned);
                for handler in handlers.filter(|handler| handler.event_type == message.event_type) {
                    let outcome = self.dry(handler, message, replay.consumer().is_some()).await?;
                    counts.count(&outcome);
                    see(DryDelivery {
                        consumer: handler.policy.consumer,
                        message_id: message.message_id(),
                        event_id: message.id.clone(),
                        event_type: message.event_type.clone(),
                        outcome,
                    });
                }
            }
        }
    }

    async fn dry(
        &self,
        handler: &Handler<DB, S>,
        message: &Message,
        again: bool,
    ) -> Result<DryOutcome, Error> {
        use DryOutcome::{WouldFail, WouldRun, WouldSkip};
        if message.is_redacted() {
            return Ok(WouldSkip { because: "its payload was redacted" });
        }
        let mut attempt = match self.store.claim_dry(handler.policy.consumer, message, again).await {
            Ok(Claimed::Open(attempt)) => attempt,
            Ok(Claimed::Duplicate(_)) => return Ok(WouldSkip { because: "it was handled before" }),
            Err(error) if error.is_contention() => {
                return Ok(WouldSkip { because: "another delivery of it is under way" });
            }
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => return Ok(WouldFail { error: error.to_string() }),
        };
        let (stop, open) = (CancellationToken::new(), OpenStarts::default());
        let runtime =
            Runtime { store: &self.store, state: &*self.state, stop: &stop, open: &open, fence: None };
        let error = match attempt::run(&runtime, handler, &mut attempt, &[message]).await {
            Ok(Ok(())) => {
                return Ok(match attempt.dry_end().await {
                    Ok(published) => WouldRun { published },
                    Err(error) => WouldFail { error: error.to_string() },
                });
            }
            Ok(Err(error)) if error.is_outage() => {
                return Err(Error::new(ErrorKind::Store, error.to_string()));
            }
            Ok(Err(error)) => error.to_string(),
            Err(undecodable) => undecodable,
        };
        attempt.rollback().await;
        Ok(WouldFail { error })
    }
}
