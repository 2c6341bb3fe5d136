//! Where messages are published to.
use crate::{
    ask::Change,
    exit::Exit,
    output::{Output, counted, say},
    replay::{How, changed, make},
    status::DestinationRow,
    time::{When, resolve},
};
use clap::{Args, Subcommand};
use twinbox_sql::{
    Dialect, ReaderStatus, Store,
    replay::{NewReplay, Selection},
};

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationsCommand {
    /// All of them, and the consumers that read the log.
    List,
    /// Send nothing more until it is resumed, over restarts too. Takes effect within a second.
    Pause(Named),
    /// Send again.
    Resume(Named),
    /// The breaker: `open` is `pause`, `close` is `resume`.
    #[command(subcommand)]
    Breaker(BreakerCommand),
    /// Let the later messages of a key go on that wait behind its dead letters.
    Unblock {
        /// The destination.
        name: String,
        /// The key.
        key: String,
        #[command(flatten)]
        change: Change,
    },
    /// Give a message up that is put aside, so that what waits behind it goes on. It stays as a dead letter.
    Skip {
        /// The destination.
        name: String,
        /// Its event id.
        message: String,
        #[command(flatten)]
        change: Change,
    },
    /// Send what was published before the destination was added.
    Backfill {
        /// The destination.
        name: String,
        /// From this time on. Without it: from the beginning of what the log still has.
        #[arg(long, value_name = "TIME")]
        since: Option<When>,
        /// Before this time. Without it: before the destination was new.
        #[arg(long, value_name = "TIME")]
        until: Option<When>,
        #[command(flatten)]
        how: How,
    },
    /// Forget one that is gone for good, with what it has put aside, so that the log is not kept for it.
    Retire(Named),
    /// Make the log readable again after the database was restored from a dump. Runs as the owner of the tables.
    Rebase {
        #[command(flatten)]
        change: Change,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The destination; a consumer of the log is `consumer:NAME`.
    name: String,
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BreakerCommand {
    /// Send nothing more.
    Open(Named),
    /// Send again.
    Close(Named),
}

pub(crate) async fn run<DB: Dialect>(
    command: DestinationsCommand,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    match command {
        DestinationsCommand::List => {
            let rows: Vec<_> = store.readers().await?.iter().map(DestinationRow::from).collect();
            output.list(&DestinationRow::COLUMNS, &rows, "No destination has ever run here.");
            Ok(())
        }
        DestinationsCommand::Pause(named) | DestinationsCommand::Breaker(BreakerCommand::Open(named)) => {
            pause(store, &named).await
        }
        DestinationsCommand::Resume(named) | DestinationsCommand::Breaker(BreakerCommand::Close(named)) => {
            resume(store, &named).await
        }
        DestinationsCommand::Unblock { name, key, change } => {
            known(store, &name).await?;
            let about = format!(
                "This will let later messages of the key {key:?} go on to {name}; dead letters of it stay."
            );
            let act = async || {
                let holding = store.unblock(&name, &key).await?;
                Ok((holding, holding))
            };
            let target = format!("{name}: key {key}");
            if let Some(count) = change.make(store, "destinations unblock", &target, &about, act).await? {
                say(&format!("{} held it, and hold it no more.", counted(count, "dead letter")));
            }
            Ok(())
        }
        DestinationsCommand::Skip { name, message, change } => {
            known(store, &name).await?;
            let about = format!(
                "This will give the message {message:?} up for {name}; what waits behind it goes on."
            );
            let act = async || Ok((store.skip(&name, &message).await?, ()));
            let target = format!("{name}: message {message}");
            changed(change.make(store, "destinations skip", &target, &about, act).await?, "It is skipped.")
        }
        DestinationsCommand::Backfill { name, since, until, how } => {
            let destination = known(store, &name).await?;
            let until = match (resolve(until, store).await?, destination.started_at) {
                (Some(until), _) => until,
                (None, Some(started_at)) => started_at,
                (None, None) => {
                    return Err(Exit::usage(format!("nobody knows when {name} was new: say --until")));
                }
            };
            let selection = Selection::new().since(resolve(since, store).await?).until(Some(until));
            let plan = store.plan_replay(&name, &selection).await?;
            let about =
                format!("This will send {} to {name}: {selection}.", counted(plan.selected, "message"));
            let new = NewReplay::resend(how.who());
            make(store, output, how, &plan, new, "destinations backfill", &about).await
        }
        DestinationsCommand::Retire(Named { name, change }) => {
            let it = known(store, &name).await?;
            let about = format!(
                "This will forget {name}: {} that it has not settled, and {} that it has put aside.",
                counted(it.backlog, "message"),
                counted(it.waiting + it.dead + it.blocking, "message")
            );
            let act = async || {
                let retired = store.retire(&name).await?;
                Ok((u64::from(retired.cursor) + retired.parked, ()))
            };
            changed(change.make(store, "destinations retire", &name, &about, act).await?, "It is forgotten.")
        }
        DestinationsCommand::Rebase { change } => {
            let about = "This will give the messages of the log transaction ids of this server; publishers wait meanwhile.";
            let act = async || {
                let rebased = store.rebase().await?.messages;
                Ok((rebased, rebased))
            };
            if let Some(count) = change.make(store, "destinations rebase", "the log", about, act).await? {
                say(&format!("{} rebased.", counted(count, "message")));
            }
            Ok(())
        }
    }
}

async fn known<DB: Dialect>(store: &Store<DB>, name: &str) -> Result<ReaderStatus, Exit> {
    let found = store.readers().await?.into_iter().find(|reader| reader.name == name);
    found.ok_or_else(|| {
        Exit::not_found(format!(
            "no destination {name:?} has ever run here: `twinbox destinations list` shows which have"
        ))
    })
}

async fn pause<DB: Dialect>(store: &Store<DB>, Named { name, change }: &Named) -> Result<(), Exit> {
    let it = known(store, name).await?;
    let about = format!("This will hold {name} back; {} it has not settled.", counted(it.backlog, "message"));
    let reason = change.reason.clone().unwrap_or_else(|| format!("by {}", change.who()));
    let act = async || Ok((1, store.open_breaker(name, &reason).await?));
    changed(change.make(store, "destinations pause", name, &about, act).await?, "It is held back.")
}

async fn resume<DB: Dialect>(store: &Store<DB>, Named { name, change }: &Named) -> Result<(), Exit> {
    let it = known(store, name).await?;
    let about = match &it.held {
        Some(reason) => format!("This will let {name} go on, which was held back: {reason}."),
        None => format!("{name} is not held back."),
    };
    let act = async || Ok((1, store.close_breaker(name).await?));
    changed(change.make(store, "destinations resume", name, &about, act).await?, "It goes on.")
}
