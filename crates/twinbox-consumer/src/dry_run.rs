//! What a replay would come to, without anything coming of it.
use crate::{
    Consumer, Error, ErrorKind, attempt,
    handler::Handler,
    start::{OpenStarts, Runtime},
};
use tokio_util::sync::CancellationToken;
use twinbox_core::{Message, MessageId};
use twinbox_sql::{
    Dialect, HandlerError, Store,
    inbox::Claimed,
    replay::{NewReplay, ReplayPlan},
};

/// Messages that are read at a time.
const PAGE: u32 = 200;
/// Tries of a delivery that gets into another's way.
const TRIES: u32 = 3;

/// What a delivery would come to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DryOutcome {
    /// Its handler runs, and its transaction can be committed.
    WouldRun {
        /// Events that it publishes with its `tx`.
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

/// What a dry run has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DryRun {
    /// Messages of the plan.
    pub messages: u64,
    /// Those among them that no handler takes.
    pub unhandled: u64,
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
    /// **What a handler does outside of its `tx` happens**, mails and writes of another connection included, unless it
    /// asks [`Tx::is_dry_run`](twinbox_sql::Tx::is_dry_run) before. Everything else leaves nothing behind: nothing is
    /// written, claimed, counted or acknowledged, and what it publishes with its `tx` goes nowhere.
    ///
    /// Each delivery is run by itself on the tables as they are: one that needs what an earlier one would have written
    /// fails, and none waits behind one of its key. An attempt may take what its policy says, whatever a lease says.
    /// Constraints that are deferred to the end are checked on Postgres only.
    /// For a broker's destination every consumer here is taken to read from it. A handler that ends its process ends this
    /// one. A resend makes a delivery of the same message that comes meanwhile wait for its turn.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the replay is for a consumer that is not registered here, or that does not read what
    /// was planned. [`ErrorKind::Store`]: a database refused or is away, or the log has lost some of the messages since
    /// they were planned; what was seen before holds.
    pub async fn dry_run<From: Dialect>(
        &self,
        from: &Store<From>,
        plan: &ReplayPlan,
        replay: &NewReplay,
        mut see: impl FnMut(DryDelivery),
    ) -> Result<DryRun, Error> {
        let handlers = self.concerned(plan, replay)?;
        let (mut run, mut after) = (DryRun::default(), None);
        loop {
            let page = from.planned_messages(plan, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.sequence;
            for message in &page {
                run.messages += 1;
                let mut takers =
                    handlers.iter().filter(|handler| handler.event_type == message.event_type).peekable();
                run.unhandled += u64::from(takers.peek().is_none());
                for handler in takers {
                    let outcome = self.dry(handler, message, replay.consumer().is_some()).await?;
                    run.count(&outcome);
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
        if run.messages < plan.selected {
            let (found, selected) = (run.messages, plan.selected);
            let what =
                format!("of {selected} messages that were planned {found} are still in the log: plan again");
            return Err(Error::new(ErrorKind::Store, what));
        }
        Ok(run)
    }

    /// The handlers that the replay would reach.
    fn concerned(&self, plan: &ReplayPlan, replay: &NewReplay) -> Result<Vec<&Handler<DB, S>>, Error> {
        let reader = plan.destination.strip_prefix("consumer:");
        let wanted = [reader, replay.consumer()];
        let is_concerned = |handler: &&Handler<DB, S>| {
            wanted.into_iter().flatten().all(|consumer| handler.policy.consumer == consumer)
        };
        let handlers: Vec<_> = self.handlers.iter().filter(is_concerned).collect();
        if handlers.is_empty() {
            let whom =
                replay.consumer().map_or("everybody".to_owned(), |name| format!("the consumer {name:?}"));
            let what = format!("a replay to {:?} for {whom} reaches no handler here", plan.destination);
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        Ok(handlers)
    }

    /// Contention is nobody's fault, and is tried again before it is told.
    async fn dry(
        &self,
        handler: &Handler<DB, S>,
        message: &Message,
        again: bool,
    ) -> Result<DryOutcome, Error> {
        for _ in 1..TRIES {
            match self.dry_once(handler, message, again).await? {
                Once::Contention(_) => {}
                Once::Done(outcome) => return Ok(outcome),
            }
        }
        Ok(match self.dry_once(handler, message, again).await? {
            Once::Contention(error) => DryOutcome::WouldFail { error },
            Once::Done(outcome) => outcome,
        })
    }

    async fn dry_once(
        &self,
        handler: &Handler<DB, S>,
        message: &Message,
        again: bool,
    ) -> Result<Once, Error> {
        let (skipped, failed) = (
            |because| Ok(Once::Done(DryOutcome::WouldSkip { because })),
            |error: HandlerError| match error {
                error if error.is_contention() => Ok(Once::Contention(error.to_string())),
                error if error.is_outage() => Err(Error::new(ErrorKind::Store, error.to_string())),
                error => Ok(Once::Done(DryOutcome::WouldFail { error: error.to_string() })),
            },
        );
        if message.is_redacted() {
            return skipped("its payload was redacted");
        }
        let mut attempt = match self.store.claim_dry(handler.policy.consumer, message, again).await {
            Ok(Claimed::Open(attempt)) => attempt,
            Ok(Claimed::Duplicate(earlier)) if earlier.state == "processed" => {
                return skipped("it was handled before");
            }
            Ok(Claimed::Duplicate(_)) => return skipped("it was given up before"),
            Err(error) => return failed(error.into()),
        };
        if handler.policy.gives_up(attempt.number() - 1) {
            attempt.rollback().await;
            return failed("its attempts ran out".into());
        }
        let (stop, open) = (CancellationToken::new(), OpenStarts::default());
        let runtime =
            Runtime { store: &self.store, state: &*self.state, stop: &stop, open: &open, fence: None };
        let error = match attempt::run(&runtime, handler, &mut attempt, &[message]).await {
            Ok(Ok(())) => {
                return match attempt.dry_end().await {
                    Ok(published) => Ok(Once::Done(DryOutcome::WouldRun { published })),
                    Err(error) => failed(error.into()),
                };
            }
            Ok(Err(error)) => error,
            Err(undecodable) => undecodable.into(),
        };
        attempt.rollback().await;
        failed(error)
    }
}

enum Once {
    Done(DryOutcome),
    Contention(String),
}
