//! `twinbox destinations`.
pub(crate) mod find;
pub(crate) mod row;

use crate::{
    change::{Change, ChangeArguments, Done},
    exit::Exit,
    output::counted,
    replays::run::{RunArguments, run_replay},
    session::Session,
    time::{When, resolve},
};
use clap::{Args, Subcommand};
use find::find_destination;
use row::DestinationRow;
use twinbox_ops::replays::NewReplay;
use twinbox_sql::{Dialect, Selection};

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationsCommand {
    /// List destinations, and consumers that read the log directly.
    List,
    /// Stop sending to a destination until `resume`, in every process and over restarts. Takes effect within
    /// a second. No message is counted as failed.
    Pause(NameArguments),
    /// Send again.
    Resume(NameArguments),
    /// Send the messages that were published before the destination was added.
    Backfill {
        /// The destination.
        name: String,
        /// With a time from here on. Default: from the beginning of the log.
        #[arg(long, value_name = "TIME")]
        since: Option<When>,
        /// With a time before this one. Default: the time when the destination started first.
        #[arg(long, value_name = "TIME")]
        until: Option<When>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Forget a destination that is gone for good, with its parked messages. The log is no longer kept for
    /// it.
    Retire(NameArguments),
    /// Repair the log after the database was restored from a dump. Needs the owner of the tables.
    Rebase {
        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// The destination. A consumer that reads the log directly is `consumer:NAME`.
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run<DB: Dialect>(
    command: DestinationsCommand,
    session: &Session<DB>,
) -> Result<(), Exit> {
    match command {
        DestinationsCommand::List => {
            let rows: Vec<_> = session.ops.readers().await?.iter().map(DestinationRow::from).collect();
            session.output.list(&DestinationRow::COLUMNS, &rows, "No destination has ever run here.");
            Ok(())
        }
        DestinationsCommand::Pause(arguments) => pause(session, &arguments).await,
        DestinationsCommand::Resume(arguments) => resume(session, &arguments).await,
        DestinationsCommand::Backfill { name, since, until, run } => {
            backfill(session, &name, since, until, run).await
        }
        DestinationsCommand::Retire(arguments) => retire(session, &arguments).await,
        DestinationsCommand::Rebase { change } => rebase(session, &change).await,
    }
}

async fn pause<DB: Dialect>(session: &Session<DB>, arguments: &NameArguments) -> Result<(), Exit> {
    let NameArguments { name, change } = arguments;
    let destination = find_destination(&session.ops, name).await?;
    // One way to pause a consumer: two would have to be resumed separately.
    if let Some(consumer) = name.strip_prefix("consumer:") {
        return Err(Exit::refused(format!("{name} is a consumer: use `twinbox consumers pause {consumer}`")));
    }
    let effect = format!(
        "This will pause destination {name} in every process. Its backlog: {}.",
        counted(destination.backlog, "message")
    );
    let reason = change.pause_reason();
    let act = async || {
        session.ops.pause_destination(name, &reason).await?;
        Ok(Done::new(1, format!("Destination {name} is paused.")))
    };
    change.run(session, &Change { command: "destinations pause", target: name, effect }, act).await
}

async fn resume<DB: Dialect>(session: &Session<DB>, arguments: &NameArguments) -> Result<(), Exit> {
    let NameArguments { name, change } = arguments;
    let destination = find_destination(&session.ops, name).await?;
    let effect = match &destination.pause_reason {
        Some(reason) => format!("This will resume destination {name}, which is paused: {reason}."),
        None => format!("Destination {name} is not paused."),
    };
    let act = async || {
        session.ops.resume_destination(name).await?;
        Ok(Done::new(1, format!("Destination {name} is resumed.")))
    };
    change.run(session, &Change { command: "destinations resume", target: name, effect }, act).await
}

async fn backfill<DB: Dialect>(
    session: &Session<DB>,
    name: &str,
    since: Option<When>,
    until: Option<When>,
    arguments: RunArguments,
) -> Result<(), Exit> {
    let (store, ops) = (&session.store, &session.ops);
    let destination = find_destination(ops, name).await?;
    let until = match (resolve(until, store).await?, destination.started_at) {
        (Some(until), _) => until,
        (None, Some(started_at)) => started_at,
        (None, None) => {
            return Err(Exit::usage(format!("the first start of {name} is not known: use --until")));
        }
    };
    let selection = Selection::new().since(resolve(since, store).await?).until(Some(until));
    let plan = ops.plan_replay(name, &selection).await?;
    let effect = format!("This will send {} to {name}: {selection}.", counted(plan.selected, "message"));
    let new = NewReplay::resend(arguments.operator());
    run_replay(session, arguments, &plan, new, "destinations backfill", effect).await
}

async fn retire<DB: Dialect>(session: &Session<DB>, arguments: &NameArguments) -> Result<(), Exit> {
    let NameArguments { name, change } = arguments;
    let destination = find_destination(&session.ops, name).await?;
    let effect = format!(
        "This will forget {name}, with a backlog of {} and {}.",
        counted(destination.backlog, "message"),
        counted(destination.waiting + destination.dead_letters + destination.blocking, "parked message")
    );
    let act = async || {
        let retired = session.ops.retire(name).await?;
        let text = format!(
            "{name} is forgotten, with {}. The log is no longer kept for it.",
            counted(retired.parked, "parked message")
        );
        let done = Done::new(u64::from(retired.had_cursor) + retired.parked, text);
        Ok(done.detail("parked", retired.parked))
    };
    change.run(session, &Change { command: "destinations retire", target: name, effect }, act).await
}

async fn rebase<DB: Dialect>(session: &Session<DB>, change: &ChangeArguments) -> Result<(), Exit> {
    let effect =
        "This will give all messages of the log transaction ids of this server. Publishers wait meanwhile.";
    let act = async || {
        let messages = session.ops.rebase().await?.messages;
        Ok(Done::new(messages, format!("{} rebased.", counted(messages, "message"))))
    };
    let effect = effect.to_owned();
    change.run(session, &Change { command: "destinations rebase", target: "the log", effect }, act).await
}
