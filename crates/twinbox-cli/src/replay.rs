//! Past messages again.
mod plan;
mod told;

use crate::{
    ask::Change,
    exit::Exit,
    output::{Output, counted, note, say},
    place::{Opened, Place},
    progress::{conclude, follow},
    selection::SelectionArguments,
};
use clap::{Args, Subcommand};
use plan::show;
use told::{COLUMNS, Told, one};
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, ErrorKind, Store,
    replay::{NewReplay, PurgeMark, ReplayPlan},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// To a destination again that lost them. Consumers pass by what they have handled.
    #[command(subcommand)]
    Resend(Resend),
    /// For one consumer to run again although it has handled them. Others pass them by.
    #[command(subcommand)]
    Reprocess(Reprocess),
    /// How replays are doing, or one.
    Status {
        /// Which one. Without it: the newest.
        id: Option<i64>,
        /// Stay until it has ended.
        #[arg(long, requires = "id")]
        follow: bool,
    },
    /// Hold one back, until it is resumed.
    Pause {
        /// Which one.
        id: i64,
        #[command(flatten)]
        change: Change,
    },
    /// Let one go on that was paused.
    Resume {
        /// Which one.
        id: i64,
        #[command(flatten)]
        change: Change,
    },
    /// End one before it is done. What was sent stays sent.
    Cancel {
        /// Which one.
        id: i64,
        #[command(flatten)]
        change: Change,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Resend {
    /// Count what would be sent, and change nothing.
    Plan(ResendArguments),
    /// Plan, ask, and have it executed by whoever relays to the destination.
    Run {
        #[command(flatten)]
        what: ResendArguments,
        /// Although a consumer may have forgotten messages that are so old. Needs --reason.
        #[arg(long, requires = "reason", help_heading = "How")]
        force: bool,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ResendArguments {
    /// The destination; a consumer of the log is `consumer:NAME`.
    #[arg(long = "to", value_name = "DESTINATION")]
    destination: String,
    /// The database of a consumer elsewhere, to be asked what it has forgotten. May be given several times.
    #[arg(long, value_name = "URL")]
    consumer_database: Vec<String>,
    #[command(flatten)]
    selection: SelectionArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Reprocess {
    /// Count what would run again, and change nothing.
    Plan(ReprocessArguments),
    /// Plan, ask, and have it executed.
    Run {
        #[command(flatten)]
        what: ReprocessArguments,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReprocessArguments {
    /// The consumer that runs again.
    #[arg(long, value_name = "NAME")]
    consumer: String,
    /// The destination that it reads from. Not needed for a consumer of the log, nor if there is but one.
    #[arg(long = "to", value_name = "DESTINATION")]
    destination: Option<String>,
    #[command(flatten)]
    selection: SelectionArguments,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "How")]
pub(crate) struct How {
    /// Messages a second, at most.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Do not stay until it has ended.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    change: Change,
}

impl How {
    pub(crate) fn who(&self) -> String {
        self.change.who()
    }
}

pub(crate) async fn run<DB: Dialect>(
    command: ReplayCommand,
    store: &Store<DB>,
    place: &Place,
    output: &Output,
) -> Result<(), Exit> {
    match command {
        ReplayCommand::Resend(Resend::Plan(what)) => {
            let (plan, forgotten) = plan_resend(what, store, place).await?;
            show(&plan, None, &forgotten, output);
            Ok(())
        }
        ReplayCommand::Resend(Resend::Run { what, how, force }) => {
            let (plan, forgotten) = plan_resend(what, store, place).await?;
            if !forgotten.is_empty() && !force && plan.selected > 0 {
                show(&plan, None, &forgotten, output);
                return Err(Exit::refused(
                    "consumers have forgotten messages that are so old: what they have handled would become dead \
                     letters, `in_doubt`. Choose a later --since, or say --force and --reason",
                ));
            }
            let (messages, names) = (counted(plan.selected, "message"), names(&forgotten));
            let about = format!(
                "This will send {messages} to {} again: {}.{names}",
                plan.destination, plan.selection
            );
            let new = NewReplay::resend(how.who());
            make(store, output, how, &plan, new, "replay resend", &about).await
        }
        ReplayCommand::Reprocess(Reprocess::Plan(what)) => {
            let (plan, consumer) = plan_reprocess(what, store).await?;
            show(&plan, Some(&consumer), &[], output);
            Ok(())
        }
        ReplayCommand::Reprocess(Reprocess::Run { what, how }) => {
            let (plan, consumer) = plan_reprocess(what, store).await?;
            let messages = counted(plan.selected, "message");
            let about = format!("This will have {consumer} run {messages} again: {}.", plan.selection);
            let new = NewReplay::reprocess(consumer, how.who());
            make(store, output, how, &plan, new, "replay reprocess", &about).await
        }
        ReplayCommand::Status { id: None, .. } => {
            let replays: Vec<_> = store.replays(20).await?.iter().map(Told::from).collect();
            output.list(&COLUMNS, &replays, "Nothing was ever replayed.");
            Ok(())
        }
        ReplayCommand::Status { id: Some(id), follow: false } => one(store, id, output).await,
        ReplayCommand::Status { id: Some(id), follow: true } => {
            say(&conclude(&follow(store, id).await?)?);
            Ok(())
        }
        ReplayCommand::Pause { id, change } => {
            let about = about(store, id, "hold back").await?;
            let reason = change.reason.clone().unwrap_or_else(|| format!("by {}", change.who()));
            let act = async || Ok((1, store.pause_replay(id, &reason).await?));
            changed(
                change.make(store, "replay pause", &id.to_string(), &about, act).await?,
                "It is held back.",
            )
        }
        ReplayCommand::Resume { id, change } => {
            let about = about(store, id, "let go on with").await?;
            let act = async || Ok((1, store.resume_replay(id).await?));
            changed(change.make(store, "replay resume", &id.to_string(), &about, act).await?, "It goes on.")
        }
        ReplayCommand::Cancel { id, change } => {
            let about = about(store, id, "end").await?;
            let act = async || Ok((u64::from(store.cancel_replay(id).await?), ()));
            changed(change.make(store, "replay cancel", &id.to_string(), &about, act).await?, "It has ended.")
        }
    }
}

/// Who has forgotten some of what is to be sent.
fn names(forgotten: &[PurgeMark]) -> String {
    let names = forgotten.iter().map(|mark| mark.consumer.as_str()).collect::<Vec<_>>().join(", ");
    if names.is_empty() { names } else { format!(" Some are older than what is remembered by {names}.") }
}

/// Says that it was done, if it was.
pub(crate) fn changed(done: Option<()>, told: &str) -> Result<(), Exit> {
    if done.is_some() {
        say(told);
    }
    Ok(())
}

async fn about<DB: Dialect>(store: &Store<DB>, id: i64, verb: &str) -> Result<String, Exit> {
    let replay = store.replay(id).await?;
    if replay.state.has_ended() {
        return Err(Exit::refused(format!("replay {id} is {}", replay.state.as_str())));
    }
    Ok(format!(
        "This will {verb} replay {id} to {}: about {} of {} are done.",
        replay.destination,
        replay.done,
        counted(replay.selected, "message")
    ))
}

async fn plan_resend<DB: Dialect>(
    what: ResendArguments,
    store: &Store<DB>,
    place: &Place,
) -> Result<(ReplayPlan, Vec<PurgeMark>), Exit> {
    let selection = what.selection.resolve(store).await?;
    let plan = store.plan_replay(&what.destination, &selection).await?;
    let mut forgotten = plan.forgotten.clone();
    if let Some(consumer) = what.destination.strip_prefix("consumer:") {
        forgotten.retain(|mark| mark.consumer == consumer);
    }
    if let Some(oldest) = plan.oldest() {
        for url in &what.consumer_database {
            forgotten.extend(marks(&place.elsewhere(url), oldest).await?);
        }
    }
    Ok((plan, forgotten))
}

async fn marks(place: &Place, oldest: Timestamp) -> Result<Vec<PurgeMark>, Exit> {
    Ok(match place.open(true).await? {
        Opened::Postgres(store) => store.purge_marks_since(oldest).await?,
        Opened::Sqlite(store) => store.purge_marks_since(oldest).await?,
    })
}

async fn plan_reprocess<DB: Dialect>(
    what: ReprocessArguments,
    store: &Store<DB>,
) -> Result<(ReplayPlan, String), Exit> {
    let destination = match what.destination {
        Some(destination) => destination,
        None => read_by(store, &what.consumer).await?,
    };
    let selection = what.selection.resolve(store).await?;
    Ok((store.plan_replay(&destination, &selection).await?, what.consumer))
}

/// From where a consumer reads, as far as this database tells.
async fn read_by<DB: Dialect>(store: &Store<DB>, consumer: &str) -> Result<String, Exit> {
    let readers = store.readers().await?;
    let own = format!("consumer:{consumer}");
    if readers.iter().any(|reader| reader.name == own) {
        return Ok(own);
    }
    let brokers: Vec<_> =
        readers.iter().filter(|r| !r.name.starts_with("consumer:")).map(|r| &r.name).collect();
    match &*brokers {
        [one] => Ok((*one).clone()),
        [] => Err(Exit::not_found(format!(
            "no consumer {consumer:?} reads the log, and there is no destination"
        ))),
        several => {
            let names = several.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            Err(Exit::usage(format!("say from where {consumer:?} reads, with --to: there are {names}")))
        }
    }
}

/// Asks, makes a replay of the plan, and stays until it has ended.
pub(crate) async fn make<DB: Dialect>(
    store: &Store<DB>,
    output: &Output,
    how: How,
    plan: &ReplayPlan,
    new: NewReplay,
    what: &str,
    about: &str,
) -> Result<(), Exit> {
    if plan.selected == 0 {
        note(&format!("Nothing that {} has settled is selected: {}.", plan.destination, plan.selection));
        return Ok(());
    }
    let new = new.rate(how.rate).reason(how.change.reason.clone());
    let target = format!("{}: {}", plan.destination, plan.selection);
    let act = async || match store.make_replay(plan, new).await {
        Ok(replay) => Ok((plan.selected, replay)),
        Err(error) if error.kind() == ErrorKind::CommitUnknown => {
            Err(Exit::failure("nobody knows whether the replay was made: `twinbox replay status` tells"))
        }
        Err(error) => Err(error.into()),
    };
    let Some(replay) = how.change.make(store, what, &target, about, act).await? else { return Ok(()) };
    let id = replay.id;
    if how.no_wait {
        output.one(&Told::from(&replay), || {
            format!("Replay {id} is made: `twinbox replay status {id} --follow` shows it.")
        });
        return Ok(());
    }
    note(&format!("Replay {id} is made. Leaving does not end it."));
    let ended = follow(store, id).await?;
    let told = conclude(&ended)?;
    output.one(&Told::from(&ended), || told);
    Ok(())
}
