//! How everything is doing.
use crate::{
    exit::Exit,
    output::{Column, Output, counted, duration, plain, say, table_of},
    progress::standing,
};
use clap::Args;
use serde::Serialize;
use std::{io::IsTerminal as _, time::Duration};
use twinbox_sql::{
    BACKLOG_MAX, ConsumerRecord, Dialect, HEARTBEAT, ReaderStatus, Store, replay::ReplayState,
};

/// How often it is looked with `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Replays that are looked at.
const REPLAYS: u32 = 100;

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Look again every two seconds, until it is interrupted.
    #[arg(long)]
    watch: bool,
    /// It is wrong if no process has had a destination for longer than this.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    max_unowned: Duration,
    /// It is wrong if a message waits for longer than this.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    max_age: Duration,
    /// It is wrong if a consumer was not heard of for longer than this.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = humantime::parse_duration)]
    max_silence: Duration,
}

#[derive(Serialize)]
pub(crate) struct DestinationRow {
    name: String,
    state: &'static str,
    lease_seconds: Option<f64>,
    backlog: u64,
    backlog_is_counted_to: u32,
    oldest_seconds: f64,
    waiting: u64,
    dead: u64,
    blocking: u64,
    held: Option<String>,
}

impl DestinationRow {
    pub(crate) const COLUMNS: [Column; 8] = [
        ("destination", "name"),
        ("state", "state"),
        ("backlog", "backlog"),
        ("oldest", "oldest_seconds"),
        ("put aside", "waiting"),
        ("dead", "dead"),
        ("blocking", "blocking"),
        ("held back", "held"),
    ];
}

impl From<&ReaderStatus> for DestinationRow {
    fn from(reader: &ReaderStatus) -> Self {
        let state = match reader {
            ReaderStatus { detached: true, .. } => "detached",
            ReaderStatus { held: Some(_), .. } => "held",
            ReaderStatus { lease: None, .. } => "unowned",
            ReaderStatus { blocking, .. } if *blocking > 0 => "blocked",
            _ => "running",
        };
        Self {
            name: reader.name.clone(),
            state,
            lease_seconds: reader.lease.map(|lease| lease.as_secs_f64()),
            backlog: reader.backlog,
            backlog_is_counted_to: BACKLOG_MAX,
            oldest_seconds: reader.oldest.as_secs_f64(),
            waiting: reader.waiting,
            dead: reader.dead,
            blocking: reader.blocking,
            held: reader.held.clone(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ConsumerRow {
    consumer: String,
    state: &'static str,
    silent_seconds: f64,
    dead_letters: u64,
    parked_deliveries: u64,
    paused: Option<String>,
}

impl ConsumerRow {
    pub(crate) const COLUMNS: [Column; 6] = [
        ("consumer", "consumer"),
        ("state", "state"),
        ("last heard", "silent_seconds"),
        ("dead letters", "dead_letters"),
        ("put aside", "parked_deliveries"),
        ("held back", "paused"),
    ];
}

impl From<&ConsumerRecord> for ConsumerRow {
    fn from(record: &ConsumerRecord) -> Self {
        let state = match record {
            ConsumerRecord { paused: Some(_), .. } => "held",
            ConsumerRecord { silent, .. } if *silent > HEARTBEAT * 3 => "silent",
            _ => "running",
        };
        Self {
            consumer: record.consumer.clone(),
            state,
            silent_seconds: record.silent.as_secs_f64(),
            dead_letters: record.dead_letters,
            parked_deliveries: record.parked_deliveries,
            paused: record.paused.clone(),
        }
    }
}

#[derive(Serialize)]
struct ReplayRow {
    id: i64,
    to: String,
    state: String,
    done: u64,
    selected: u64,
}

#[derive(Serialize)]
struct Status {
    service: String,
    destinations: Vec<DestinationRow>,
    consumers: Vec<ConsumerRow>,
    replays: Vec<ReplayRow>,
    alarms: Vec<String>,
}

pub(crate) async fn run<DB: Dialect>(
    arguments: StatusArguments,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    if !arguments.watch {
        let status = look(&arguments, store).await?;
        output.one(&status, || told(&status));
        return if status.alarms.is_empty() { Ok(()) } else { Err(Exit::alarm()) };
    }
    loop {
        let status = look(&arguments, store).await?;
        if output.is_table() && std::io::stdout().is_terminal() {
            // From the top, each line to its end, and what is below away: no flicker.
            let lines = told(&status).replace('\n', "\u{1b}[K\n");
            say(&format!("\u{1b}[H{lines}\u{1b}[K\n\u{1b}[J"));
        } else {
            output.one(&status, || told(&status));
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Err(Exit::interrupted("")),
        }
    }
}

async fn look<DB: Dialect>(arguments: &StatusArguments, store: &Store<DB>) -> Result<Status, Exit> {
    let (readers, consumers) = (store.readers().await?, store.consumers().await?);
    let replays = store.replays(REPLAYS).await?.into_iter().filter(|replay| !replay.state.has_ended());
    let replays: Vec<_> = replays.collect();
    let mut alarms = Vec::new();
    for reader in &readers {
        let name = &reader.name;
        if reader.detached {
            alarms.push(format!("{name} is detached: retire it, and start it again"));
        } else if reader.lease.is_none() && reader.unowned > arguments.max_unowned {
            alarms.push(format!("nobody has had {name} for {}", duration(reader.unowned)));
        }
        if reader.oldest > arguments.max_age && !reader.detached {
            alarms.push(format!("a message has waited for {name} for {}", duration(reader.oldest)));
        }
        if reader.blocking > 0 {
            alarms.push(format!("a dead letter blocks {name}: redrive it, or skip it"));
        }
    }
    for record in consumers.iter().filter(|record| record.silent > arguments.max_silence) {
        alarms.push(format!("{} was not heard of for {}", record.consumer, duration(record.silent)));
    }
    Ok(Status {
        service: store.service().to_owned(),
        destinations: readers.iter().map(DestinationRow::from).collect(),
        consumers: consumers.iter().map(ConsumerRow::from).collect(),
        replays: replays
            .iter()
            .map(|replay| ReplayRow {
                id: replay.id,
                to: replay.consumer.clone().unwrap_or_else(|| replay.destination.clone()),
                state: match &replay.state {
                    ReplayState::Paused { .. } => "paused".to_owned(),
                    _ => standing(replay),
                },
                done: replay.done,
                selected: replay.selected,
            })
            .collect(),
        alarms,
    })
}

fn told(status: &Status) -> String {
    let mut parts = vec![format!("Service {:?}", status.service)];
    if status.destinations.is_empty() {
        parts.push("No destination has ever run here.".to_owned());
    } else {
        parts.push(table_of(&DestinationRow::COLUMNS, &status.destinations));
    }
    if !status.consumers.is_empty() {
        parts.push(table_of(&ConsumerRow::COLUMNS, &status.consumers));
    }
    if !status.replays.is_empty() {
        let columns =
            [("replay", "id"), ("to", "to"), ("state", "state"), ("done", "done"), ("of", "selected")];
        parts.push(table_of(&columns, &status.replays));
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
