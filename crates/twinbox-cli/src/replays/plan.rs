//! Planning a replay: counts the messages and changes nothing.
use crate::{
    consumers::find::{consumer_names, unknown_consumer},
    exit::Exit,
    output::{Output, counted, plain, table_of},
    session::{Opened, Session},
};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeSet;
use twinbox_core::Timestamp;
use twinbox_ops::{
    Ops,
    replays::{PurgeMark, ReplayPlan},
};
use twinbox_sql::{Dialect, Selection};

#[derive(Debug, Args)]
pub(crate) struct ResendArguments {
    /// The destination. A consumer that reads the log directly is `consumer:NAME`.
    #[arg(long = "to", value_name = "DESTINATION")]
    pub(super) destination: String,
    /// The database of a consumer elsewhere, to check what its inbox has purged. Repeatable.
    #[arg(long, value_name = "URL")]
    consumer_database: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReprocessArguments {
    /// The consumer that runs again.
    #[arg(long, value_name = "NAME")]
    pub(super) consumer: String,
    /// The destination that it reads from. Not needed for a consumer that reads the log directly, or with a
    /// single destination.
    #[arg(long = "to", value_name = "DESTINATION")]
    destination: Option<String>,
    /// The database that the consumer runs on, if it is another one. Repeatable.
    #[arg(long, value_name = "URL")]
    consumer_database: Vec<String>,
    /// Accept a consumer that none of these databases knows.
    #[arg(long)]
    unknown_consumer: bool,
}

/// A plan for a resend, with the consumers that have purged claims as old as its messages.
pub(super) async fn plan_resend<DB: Dialect>(
    session: &Session<DB>,
    arguments: &ResendArguments,
    selection: &Selection,
) -> Result<(ReplayPlan, Vec<PurgeMark>), Exit> {
    let plan = session.ops.plan_replay(&arguments.destination, selection).await?;
    let mut purged = plan.forgotten.clone();
    if let Some(consumer) = arguments.destination.strip_prefix("consumer:") {
        purged.retain(|mark| mark.consumer == consumer);
    }
    if let Some(oldest) = plan.oldest() {
        for url in &arguments.consumer_database {
            purged.extend(purge_marks(session, url, oldest).await?);
        }
    }
    Ok((plan, purged))
}

async fn purge_marks<DB: Dialect>(
    session: &Session<DB>,
    url: &str,
    oldest: Timestamp,
) -> Result<Vec<PurgeMark>, Exit> {
    Ok(match Opened::open(session.connection.with_url(url), session.output, true).await? {
        Opened::Postgres(other) => other.ops.purge_marks_since(oldest).await?,
        Opened::MySql(other) => other.ops.purge_marks_since(oldest).await?,
        Opened::Sqlite(other) => other.ops.purge_marks_since(oldest).await?,
    })
}

pub(super) async fn plan_reprocess<DB: Dialect>(
    session: &Session<DB>,
    arguments: &ReprocessArguments,
    selection: &Selection,
) -> Result<ReplayPlan, Exit> {
    if !arguments.unknown_consumer {
        require_known_consumer(session, arguments).await?;
    }
    let destination = match &arguments.destination {
        Some(destination) => destination.clone(),
        None => read_by(&session.ops, &arguments.consumer).await?,
    };
    Ok(session.ops.plan_replay(&destination, selection).await?)
}

/// A reprocess for a consumer that does not exist succeeds and runs nothing.
async fn require_known_consumer<DB: Dialect>(
    session: &Session<DB>,
    arguments: &ReprocessArguments,
) -> Result<(), Exit> {
    let mut known = consumer_names(&session.ops).await?;
    for url in &arguments.consumer_database {
        let names = match Opened::open(session.connection.with_url(url), session.output, true).await? {
            Opened::Postgres(other) => consumer_names(&other.ops).await?,
            Opened::MySql(other) => consumer_names(&other.ops).await?,
            Opened::Sqlite(other) => consumer_names(&other.ops).await?,
        };
        known.extend::<BTreeSet<String>>(names);
    }
    if known.contains(&arguments.consumer) {
        return Ok(());
    }
    Err(Exit::not_found(format!(
        "{}. If it runs on another database, name that with --consumer-database, or use --unknown-consumer",
        unknown_consumer(&arguments.consumer, &known)
    )))
}

/// The destination that a consumer reads from, as far as this database shows.
async fn read_by<DB: Dialect>(ops: &Ops<DB>, consumer: &str) -> Result<String, Exit> {
    let readers = ops.readers().await?;
    let own = format!("consumer:{consumer}");
    if readers.iter().any(|reader| reader.name == own) {
        return Ok(own);
    }
    let brokers: Vec<_> =
        readers.iter().filter(|r| !r.name.starts_with("consumer:")).map(|r| &r.name).collect();
    match &*brokers {
        [one] => Ok((*one).clone()),
        [] => Err(Exit::not_found(format!(
            "consumer {consumer:?} does not read the log, and there is no destination"
        ))),
        several => {
            let names = several.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            Err(Exit::usage(format!(
                "there are several destinations: name the one that {consumer:?} reads from, with --to: \
                 {names}"
            )))
        }
    }
}

#[derive(Serialize)]
struct TypeRow {
    event_type: String,
    messages: u64,
    oldest: String,
    newest: String,
}

#[derive(Serialize)]
struct SampleRow {
    position: i64,
    id: String,
    event_type: String,
    key: Option<String>,
    time: String,
}

#[derive(Serialize)]
struct PurgedRow {
    consumer: String,
    purged_until: String,
}

#[derive(Serialize)]
struct PlanRow {
    kind: &'static str,
    destination: String,
    consumer: Option<String>,
    selection: String,
    selected: u64,
    types: Vec<TypeRow>,
    sample: Vec<SampleRow>,
    purged: Vec<PurgedRow>,
}

/// Prints a plan. `consumer`: None for a resend.
pub(super) fn print_plan(plan: &ReplayPlan, consumer: Option<&str>, purged: &[PurgeMark], output: &Output) {
    let row = PlanRow {
        kind: if consumer.is_some() { "reprocess" } else { "resend" },
        destination: plan.destination.clone(),
        consumer: consumer.map(str::to_owned),
        selection: plan.selection.to_string(),
        selected: plan.selected,
        types: plan
            .types
            .iter()
            .map(|one| TypeRow {
                event_type: one.event_type.clone(),
                messages: one.messages,
                oldest: one.oldest.to_string(),
                newest: one.newest.to_string(),
            })
            .collect(),
        sample: plan
            .sample
            .iter()
            .map(|one| SampleRow {
                position: one.position,
                id: one.id.clone(),
                event_type: one.event_type.clone(),
                key: one.key.clone(),
                time: one.time.to_string(),
            })
            .collect(),
        purged: purged
            .iter()
            .map(|mark| PurgedRow { consumer: mark.consumer.clone(), purged_until: mark.time.to_string() })
            .collect(),
    };
    output.one(&row, || render(&row));
}

fn render(plan: &PlanRow) -> String {
    let mut text = headline(plan);
    if plan.selected == 0 {
        return text;
    }
    let types =
        [("type", "event_type"), ("messages", "messages"), ("oldest", "oldest"), ("newest", "newest")];
    let sample =
        [("position", "position"), ("id", "id"), ("type", "event_type"), ("key", "key"), ("time", "time")];
    text += &format!(
        "\n\n{}\n\nThe first ones:\n{}",
        table_of(&types, &plan.types),
        table_of(&sample, &plan.sample)
    );
    if !plan.purged.is_empty() {
        let columns = [("consumer", "consumer"), ("inbox purged until", "purged_until")];
        text += &format!(
            "\n\nSome messages are older than the inboxes of these consumers:\n{}",
            table_of(&columns, &plan.purged)
        );
    }
    text + "\n\n"
        + match plan.consumer {
            Some(_) => {
                "The consumer's claims on these messages are taken back and kept on record. Other consumers \
                 skip the \
                 messages."
            }
            None => {
                "Consumers that have handled the messages skip them. If a consumer on another database has \
                 purged its \
                 claims on them, they become its dead letters, `in_doubt`."
            }
        }
}

fn headline(plan: &PlanRow) -> String {
    let (messages, destination) = (counted(plan.selected, "message"), plain(&plan.destination));
    let selection = plain(&plan.selection);
    match &plan.consumer {
        None => format!("Resend {messages} to {destination}: {selection}."),
        Some(consumer) => {
            format!("Reprocess {messages} with {} through {destination}: {selection}.", plain(consumer))
        }
    }
}
