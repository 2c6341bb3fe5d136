//! `twinbox status`.
use crate::{
    consumers::row::ConsumerRow,
    destinations::row::DestinationRow,
    exit::{Exit, explain},
    output::{counted, plain, print_line, table_of},
    replays::row::state_text,
    session::Session,
    vendors::VendorRow,
};
use clap::Args;
use serde::Serialize;
use std::{io::IsTerminal as _, time::Duration};
use twinbox_ops::{AlarmBounds, parse_duration};
use twinbox_sql::{Dialect, Error, replay::ReplayState};

/// The interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// The number of replays that are read.
const REPLAYS_MAX: u32 = 100;

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Print again every two seconds, until interrupted.
    #[arg(long)]
    watch: bool,
    /// Raise an alarm if no process has run a destination, or moved a delayed message that is due, for
    /// longer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    max_unowned: Duration,
    /// Raise an alarm if a message or a side effect has waited for longer.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    max_age: Duration,
    /// Raise an alarm if a side effect failed within this time.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    failed_within: Duration,
    /// Raise an alarm if a consumer was not seen for longer.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    max_silence: Duration,
    /// Raise an alarm if a consumer has more dead letters. They are counted up to 10,000.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    max_dead_letters: u64,
}

/// The parts that could not be read, because another session locks their tables.
#[derive(Default)]
struct Unread {
    alarms: Vec<String>,
}

impl Unread {
    /// Returns what was read, or nothing.
    ///
    /// # Errors
    /// It could not be read for another reason.
    fn or_nothing<T: Default>(&mut self, part: &str, read: Result<T, Error>) -> Result<T, Exit> {
        match read {
            Err(error) if error.is_lock_timeout() => {
                self.alarms.push(format!("{part} could not be read: {}", explain(&error)));
                Ok(T::default())
            }
            read => Ok(read?),
        }
    }
}

#[derive(Serialize)]
struct RunningReplay {
    id: i64,
    to: String,
    state: String,
    done: u64,
    selected: u64,
}

#[derive(Serialize)]
struct Status {
    service: String,
    database: String,
    destinations: Vec<DestinationRow>,
    consumers: Vec<ConsumerRow>,
    replays: Vec<RunningReplay>,
    effects: EffectsStatus,
    alarms: Vec<String>,
    #[serde(skip)]
    is_whole: bool,
}

#[derive(Serialize)]
struct EffectsStatus {
    /// Counted up to 10,000, as the next ones.
    unknown: u64,
    failed: u64,
    failed_lately: u64,
    vendors: Vec<VendorRow>,
}

pub(crate) async fn run<DB: Dialect>(arguments: &StatusArguments, session: &Session<DB>) -> Result<(), Exit> {
    if !arguments.watch {
        let status = read(arguments, session).await?;
        session.output.one(&status, || render(&status));
        return if status.alarms.is_empty() { Ok(()) } else { Err(Exit::alarm()) };
    }
    loop {
        let status = read(arguments, session).await?;
        if session.output.is_table() && std::io::stdout().is_terminal() {
            // Cursor to the top, clear each line to its end, then clear the rest: no flicker.
            let lines = render(&status).replace('\n', "\u{1b}[K\n");
            print_line(&format!("\u{1b}[H{lines}\u{1b}[K\n\u{1b}[J"));
        } else {
            session.output.one(&status, || render(&status));
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Err(Exit::interrupted("")),
        }
    }
}

async fn read<DB: Dialect>(arguments: &StatusArguments, session: &Session<DB>) -> Result<Status, Exit> {
    let (store, ops) = (&session.store, &session.ops);
    let mut unread = Unread::default();
    // Beside each other, because each may wait for a lock.
    let (readers, consumers, replays) =
        tokio::join!(ops.readers(), ops.consumers(), ops.replays(REPLAYS_MAX));
    let readers = unread.or_nothing("destinations", readers)?;
    let consumers = unread.or_nothing("consumers", consumers)?;
    let replays = unread.or_nothing("replays", replays)?;
    let (problems, vendors, delayed_overdue) =
        tokio::join!(ops.effect_problems(arguments.failed_within), ops.vendors(), ops.delayed_overdue());
    let problems = unread.or_nothing("side effects", problems)?;
    let vendors = unread.or_nothing("vendors", vendors)?;
    let delayed_overdue = unread.or_nothing("delayed messages", delayed_overdue)?;
    let bounds = AlarmBounds {
        max_unowned: arguments.max_unowned,
        max_age: arguments.max_age,
        failed_within: arguments.failed_within,
        max_silence: arguments.max_silence,
        max_dead_letters: arguments.max_dead_letters,
    };
    let mut alarms = bounds.alarms(delayed_overdue, &readers, &consumers, &problems, &vendors);
    let is_whole = unread.alarms.is_empty();
    if !is_whole {
        alarms.append(&mut unread.alarms);
        alarms.extend(session.locks().await);
    }
    let running = replays.iter().filter(|replay| !replay.state.has_ended());
    Ok(Status {
        service: store.service().to_owned(),
        database: session.database.id(),
        destinations: readers.iter().map(DestinationRow::from).collect(),
        consumers: consumers.iter().map(ConsumerRow::from).collect(),
        replays: running
            .map(|replay| RunningReplay {
                id: replay.id,
                to: replay.consumer.clone().unwrap_or_else(|| replay.destination.clone()),
                state: match &replay.state {
                    ReplayState::Paused { .. } => "paused".to_owned(),
                    _ => state_text(replay),
                },
                done: replay.done,
                selected: replay.selected,
            })
            .collect(),
        effects: EffectsStatus {
            unknown: problems.unknown,
            failed: problems.failed,
            failed_lately: problems.failed_lately,
            vendors: vendors.iter().map(VendorRow::from).collect(),
        },
        alarms,
        is_whole,
    })
}

fn render(status: &Status) -> String {
    let mut parts = vec![format!("Service {:?}, database {}", status.service, plain(&status.database))];
    if !status.destinations.is_empty() {
        parts.push(table_of(&DestinationRow::COLUMNS, &status.destinations));
    } else if status.is_whole {
        parts.push("No destination has ever run here.".to_owned());
    }
    if !status.consumers.is_empty() {
        parts.push(table_of(&ConsumerRow::COLUMNS, &status.consumers));
    }
    if !status.replays.is_empty() {
        let columns =
            [("replay", "id"), ("to", "to"), ("state", "state"), ("done", "done"), ("of", "selected")];
        parts.push(table_of(&columns, &status.replays));
    }
    if !status.effects.vendors.is_empty() {
        parts.push(table_of(&VendorRow::COLUMNS, &status.effects.vendors));
    }
    parts.push(match &*status.alarms {
        [] => "Nothing is wrong.".to_owned(),
        alarms => {
            let lines = alarms.iter().map(|alarm| format!("  {}", plain(alarm))).collect::<Vec<_>>();
            format!("{}:\n{}", counted(alarms.len() as u64, "alarm"), lines.join("\n"))
        }
    });
    parts.join("\n\n")
}
