//! Dry runs of replays: the handlers run, and everything is rolled back, except on MySQL what a handler
//! commits by itself.
use crate::{
    attempt::run_handler,
    consumer::Consumer,
    context::NoConsumer,
    error::{Error, ErrorKind},
    handler::Handler,
};
use futures::{Stream, StreamExt as _};
use twinbox_core::{Message, MessageId};
use twinbox_sql::{Dialect, HandlerError, ReaderName, inbox::InboxClaim};

/// Attempts at a delivery that meets contention.
const ATTEMPTS_MAX: u32 = 3;

/// The result that a delivery would have, as a dry run found it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DryRunOutcome {
    /// The handler runs, and its transaction could commit.
    WouldRun {
        /// Events that the handler publishes with its `tx`.
        published: u32,
    },
    /// No handler would run on the delivery.
    WouldSkip {
        /// The reason.
        because: &'static str,
    },
    /// The attempt of the handler would fail.
    WouldFail {
        /// The error with its causes.
        error: String,
    },
}

/// One delivery that a dry run tried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DryRunDelivery {
    /// The consumer of the delivery.
    pub consumer: &'static str,
    /// The id of the message in the inbox.
    pub message_id: MessageId,
    /// The id of the event at its source.
    pub event_id: String,
    /// The type of the event.
    pub event_type: String,
    /// The result that the delivery would have.
    pub outcome: DryRunOutcome,
}

/// How many deliveries of a dry run would run, fail and be skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DryRunCounts {
    /// How many messages the plan has.
    pub messages: u64,
    /// How many messages have no handler.
    pub unhandled: u64,
    /// How many deliveries would run their handler and commit.
    pub would_run: u64,
    /// How many deliveries would run no handler.
    pub would_skip: u64,
    /// How many deliveries would fail.
    pub would_fail: u64,
}

impl DryRunCounts {
    fn count(&mut self, outcome: &DryRunOutcome) {
        *match outcome {
            DryRunOutcome::WouldRun { .. } => &mut self.would_run,
            DryRunOutcome::WouldSkip { .. } => &mut self.would_skip,
            DryRunOutcome::WouldFail { .. } => &mut self.would_fail,
        } += 1;
    }
}

/// A replay that an operator planned, for [`Consumer::dry_run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedReplay {
    /// The destination to which the replay sends, or the consumer of the log: `nats`, or `consumer:NAME` for
    /// a consumer that reads the log itself.
    pub destination: String,
    /// The one consumer that reprocesses the messages. None: a resend to every consumer.
    pub consumer: Option<String>,
    /// The number of planned messages.
    pub messages: u64,
}

impl<DB: Dialect, S: Send + Sync + 'static> Consumer<DB, S> {
    /// Runs the handlers on the messages of a planned replay, and rolls every transaction back.
    ///
    /// `messages` are the planned ones in the order of the log. Deliveries run one after the other. `report`
    /// is called with each of them, as soon as its outcome is known.
    ///
    /// **Side effects outside of the `tx` happen**, such as mails and writes on another connection, unless
    /// the handler checks [`Tx::is_dry_run`](twinbox_sql::Tx::is_dry_run) first. Everything else leaves
    /// nothing behind: no row, no claim, no attempt, no ack, no published event.
    ///
    /// A dry run differs from the replay:
    /// - Each delivery sees the tables as they are now. One that needs the writes of an earlier delivery
    ///   fails.
    /// - No delivery waits behind another one of its key.
    /// - An attempt may take as long as its policy says, also if a lease is shorter.
    /// - Constraints that are deferred to the commit are checked on Postgres only.
    /// - For a destination at a broker, every consumer here is assumed to read from it.
    /// - A handler that ends its process ends this process.
    /// - During a resend's dry run, a real delivery of the same message waits.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the replay reaches no consumer that is registered here.
    /// [`ErrorKind::Store`]: a database refused or is away, or messages were purged after they were planned.
    /// Outcomes that were reported before stay valid.
    ///
    /// # Examples
    /// Plan the replay with `twinbox_ops::Ops::plan_replay`, and read its messages with `planned_messages`:
    ///
    /// ```no_run
    /// use futures::Stream;
    /// use sqlx::Postgres;
    /// use twinbox_consumer::{Consumer, DryRunOutcome, PlannedReplay};
    /// use twinbox_core::Message;
    ///
    /// # async fn preview<S: Send + Sync + 'static>(
    /// #     consumer: Consumer<Postgres, S>,
    /// #     replay: PlannedReplay,
    /// #     messages: impl Stream<Item = Result<Message, twinbox_sql::Error>>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let counts = consumer
    ///     .dry_run(&replay, messages, |delivery| {
    ///         if let DryRunOutcome::WouldFail { error } = delivery.outcome {
    ///             println!("{}: {error}", delivery.event_id);
    ///         }
    ///     })
    ///     .await?;
    /// println!("{} of {} would run", counts.would_run, counts.messages);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dry_run(
        &self,
        replay: &PlannedReplay,
        messages: impl Stream<Item = Result<Message, twinbox_sql::Error>>,
        mut report: impl FnMut(DryRunDelivery),
    ) -> Result<DryRunCounts, Error> {
        let handlers = self.handlers_reached(replay)?;
        let reprocesses = replay.consumer.is_some();
        let mut run = DryRunCounts::default();
        let mut messages = std::pin::pin!(messages);
        while let Some(message) = messages.next().await {
            let message = message.map_err(|error| {
                Error::new(ErrorKind::Store, "the planned messages cannot be read").with_source(error)
            })?;
            run.messages += 1;
            let mut handlers =
                handlers.iter().filter(|handler| handler.event_type == message.event_type).peekable();
            run.unhandled += u64::from(handlers.peek().is_none());
            for handler in handlers {
                let outcome = self.dry_attempt(handler, &message, reprocesses).await?;
                run.count(&outcome);
                report(DryRunDelivery {
                    consumer: handler.policy.consumer,
                    message_id: message.message_id(),
                    event_id: message.id.clone(),
                    event_type: message.event_type.clone(),
                    outcome,
                });
            }
        }
        if run.messages < replay.messages {
            let (found, planned) = (run.messages, replay.messages);
            let message =
                format!("of {planned} planned messages only {found} are still in the log: plan again");
            return Err(Error::new(ErrorKind::Store, message));
        }
        Ok(run)
    }

    /// Returns the handlers that the replay would reach.
    fn handlers_reached(&self, replay: &PlannedReplay) -> Result<Vec<&Handler<DB, S>>, Error> {
        let reader = match replay.destination.parse() {
            Ok(ReaderName::Consumer(name)) => Some(name),
            _ => None,
        };
        let is_reached = |handler: &&Handler<DB, S>| {
            [&reader, &replay.consumer].into_iter().flatten().all(|name| handler.policy.consumer == name)
        };
        let handlers: Vec<_> = self.handlers.iter().filter(is_reached).collect();
        if handlers.is_empty() {
            let addressee = match &replay.consumer {
                Some(name) => format!("the consumer {name:?}"),
                None => "all consumers".to_owned(),
            };
            let message =
                format!("a replay to {:?} for {addressee} reaches no handler here", replay.destination);
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        Ok(handlers)
    }

    /// Attempts a delivery, again after contention.
    async fn dry_attempt(
        &self,
        handler: &Handler<DB, S>,
        message: &Message,
        reprocesses: bool,
    ) -> Result<DryRunOutcome, Error> {
        let mut attempts = 1;
        loop {
            match self.dry_attempt_once(handler, message, reprocesses).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) if error.is_contention() && attempts < ATTEMPTS_MAX => attempts += 1,
                Err(error) if error.is_outage() && !error.is_contention() => {
                    let message = "a database is not available, the dry run ends";
                    return Err(Error::new(ErrorKind::Store, message).with_source(error.to_string()));
                }
                Err(error) => return Ok(DryRunOutcome::WouldFail { error: error.to_string() }),
            }
        }
    }

    async fn dry_attempt_once(
        &self,
        handler: &Handler<DB, S>,
        message: &Message,
        reprocesses: bool,
    ) -> Result<DryRunOutcome, HandlerError> {
        if message.is_redacted() {
            return Ok(DryRunOutcome::WouldSkip { because: "its payload was redacted" });
        }
        let inbox = self.store.inbox(handler.policy.consumer);
        let mut attempt = match inbox.claim_for_dry_run(message, reprocesses).await? {
            InboxClaim::Open(attempt) => attempt,
            InboxClaim::Duplicate(earlier) if earlier.state == "processed" => {
                return Ok(DryRunOutcome::WouldSkip { because: "it was handled before" });
            }
            InboxClaim::Duplicate(_) => {
                return Ok(DryRunOutcome::WouldSkip { because: "it is a dead letter" });
            }
        };
        if handler.policy.gives_up(attempt.number() - 1) {
            attempt.rollback().await;
            return Err("no attempts are left".into());
        }
        let no_consumer = NoConsumer::default();
        let context = no_consumer.context(&self.store, &inbox, &*self.state);
        match run_handler(&context, handler, &mut attempt, &[message]).await {
            Ok(()) => Ok(DryRunOutcome::WouldRun { published: attempt.end_dry_run().await? }),
            Err(error) => {
                attempt.rollback().await;
                Err(error.into_handler_error())
            }
        }
    }
}
