//! Whether everything is set up so that nothing is lost.
#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "nats")]
mod nats;

use crate::{
    exit::Exit,
    grants::role,
    keys::short,
    output::{Output, brief, counted, duration, plain},
    place::Place,
};
use clap::Args;
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use twinbox_core::Timestamp;
use twinbox_sql::{ConsumerRecord, Dialect, ErrorKind, ReaderStatus, Role, Store, replay::Replay};

/// How far the clock of the database may be from that of this machine.
const SKEW_MAX: Duration = Duration::from_secs(5);
/// A consumer that was not heard of for longer than this.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A log that is kept for longer than this for a replay.
const REPLAY_MAX: Duration = Duration::from_secs(24 * 3600);

/// A request that nobody has tried again for longer than this.
const UNFINISHED_AGE_MAX: Duration = Duration::from_secs(3600);
/// How many of those are named.
const UNFINISHED_NAMED: u32 = 3;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Whether a database role has the rights that it needs: its name, and `producer`, `runtime`, `keeper`, `operator` or
    /// `redactor`. May be given several times. Whoever asks is looked at as an operator.
    #[arg(long = "role", value_name = "NAME=PURPOSE", value_parser = role)]
    roles: Vec<(String, Role)>,
    #[cfg(feature = "nats")]
    #[command(flatten)]
    nats: nats::NatsArguments,
    #[cfg(feature = "aws")]
    #[command(flatten)]
    aws: aws::AwsArguments,
}

#[derive(Serialize)]
struct Finding {
    what: String,
    /// `ok`, `warning` or `wrong`.
    verdict: &'static str,
    found: String,
}

fn finding(what: &str, verdict: &'static str, found: impl Into<String>) -> Finding {
    Finding { what: what.to_owned(), verdict, found: found.into() }
}

/// The tables, their owner, the sentinel, the sequence and a pooler were looked at when the store was opened.
pub(crate) async fn run<DB: Dialect>(
    arguments: &DoctorArguments,
    store: &Store<DB>,
    place: &Place,
    output: &Output,
) -> Result<(), Exit> {
    let version = store.schema_version().await?;
    let mut findings = vec![
        finding("tables", "ok", format!("version {version} of service {:?}", store.service())),
        finding("log", "ok", "it was not restored from a dump, and its sequence caches nothing"),
    ];
    findings.extend(store.facts().await?.into_iter().map(|(name, value)| setting(&name, &value)));
    if !DB::ONE_WRITER {
        findings.push(match place.has_pooler() {
            true => {
                finding("pooler", "ok", "every statement is unnamed and in a transaction, as --pooler asks")
            }
            false => finding("pooler", "ok", "none that shares connections was found; with one say --pooler"),
        });
    }
    findings.push(clock(store.now().await?));
    findings.push(rights(store, None, Role::Operator).await?);
    for (name, role) in &arguments.roles {
        findings.push(rights(store, Some(name), *role).await?);
    }
    let readers = store.readers().await?;
    if readers.is_empty() {
        findings.push(finding(
            "destinations",
            "warning",
            "none has ever run here: what is published goes nowhere",
        ));
    }
    findings.extend(readers.iter().map(destination));
    findings.extend(store.consumers().await?.iter().map(consumer));
    let now = store.now().await?;
    let replays = store.replays(100).await?;
    findings.extend(replays.iter().filter(|one| !one.state.has_ended()).map(|one| replay(one, now)));
    findings.push(keys(store, now).await?);
    let forgotten = store.purge_marks_since(Timestamp::from_micros(0)).await?;
    for mark in &forgotten {
        let found = format!("it has forgotten messages up to {}", brief(&mark.time.to_string()));
        findings.push(finding(&format!("inbox of {}", mark.consumer), "ok", found));
    }
    #[cfg(feature = "nats")]
    {
        let forgotten = forgotten.into_iter().map(|mark| {
            let own = format!("consumer:{}", mark.consumer);
            let reads_log = readers.iter().any(|reader| reader.name == own);
            (mark, reads_log)
        });
        let forgotten = Vec::from_iter(forgotten);
        findings.extend(arguments.nats.look(&forgotten, now).await);
    }
    #[cfg(feature = "aws")]
    findings.extend(arguments.aws.look().await);
    output.told(&findings, "", told);
    match findings.iter().filter(|finding| finding.verdict == "wrong").count() {
        0 => Ok(()),
        _ => Err(Exit::alarm()),
    }
}

fn told(finding: &Finding) -> String {
    format!("{:8}{}: {}", finding.verdict, plain(&finding.what), plain(&finding.found))
}

fn destination(reader: &ReaderStatus) -> Finding {
    let name = format!("destination {}", reader.name);
    match reader {
        reader if reader.detached => finding(&name, "wrong", "detached: retire it, and start it again"),
        reader if reader.blocking > 0 => {
            finding(&name, "wrong", "a dead letter blocks it: redrive it, or skip it")
        }
        reader if reader.lease.is_none() => {
            let unowned = duration(reader.unowned);
            finding(&name, "wrong", format!("nobody has had it for {unowned}, and the log is kept for it"))
        }
        reader => match &reader.held {
            Some(reason) => finding(&name, "warning", format!("held back: {}", brief(&plain(reason)))),
            None => finding(&name, "ok", format!("its oldest message waits for {}", duration(reader.oldest))),
        },
    }
}

fn consumer(consumer: &ConsumerRecord) -> Finding {
    let (name, silent) = (format!("consumer {}", consumer.consumer), duration(consumer.silent));
    match &consumer.paused {
        Some(reason) => finding(&name, "warning", format!("held back: {}", brief(&plain(reason)))),
        None if consumer.silent > SILENCE_MAX => {
            finding(&name, "warning", format!("not heard of for {silent}"))
        }
        None => finding(&name, "ok", format!("heard of {silent} ago")),
    }
}

fn replay(replay: &Replay, now: Timestamp) -> Finding {
    let age = now.as_micros().saturating_sub(replay.made_at.as_micros());
    let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
    let verdict = if age > REPLAY_MAX { "warning" } else { "ok" };
    let found = format!("{} for {}, and the log is kept for it", replay.state.as_str(), duration(age));
    finding(&format!("replay {}", replay.id), verdict, found)
}

/// Requests that called somebody, or may have, and never ended.
async fn keys<DB: Dialect>(store: &Store<DB>, now: Timestamp) -> Result<Finding, Exit> {
    const WHAT: &str = "unfinished keys";
    let count = store.count_unfinished().await?;
    let oldest = store.unfinished_operations(UNFINISHED_NAMED).await?;
    let Some(first) = oldest.first() else { return Ok(finding(WHAT, "ok", "none")) };
    let age = now.as_micros().saturating_sub(first.updated_at.as_micros());
    let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
    let names = Vec::from_iter(oldest.iter().map(|one| format!("{} of {}", short(&one.slot), one.scope)));
    let found = format!(
        "{}: what they did outside is not known. The oldest rests for {}: {}. See `twinbox keys list --unfinished`",
        counted(count, "request"),
        duration(age),
        brief(&plain(&names.join(", "))),
    );
    let verdict = match oldest.iter().any(|one| one.has_expired) {
        true => "wrong",
        false if age > UNFINISHED_AGE_MAX => "warning",
        false => "ok",
    };
    Ok(finding(WHAT, verdict, found))
}

async fn rights<DB: Dialect>(store: &Store<DB>, name: Option<&str>, role: Role) -> Result<Finding, Exit> {
    let what = match name {
        Some(name) => format!("rights of {name} as {}", role.as_str()),
        None => format!("own rights as {}", role.as_str()),
    };
    let missing = match store.missing_rights(name, role).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(finding(&what, "wrong", error.to_string()));
        }
        missing => missing?,
    };
    Ok(match missing.as_deref() {
        None => finding(&what, "ok", "this database has no roles"),
        Some([]) => finding(&what, "ok", "all that GRANTS.md says"),
        Some(missing) => finding(&what, "wrong", format!("lacks {}", missing.join("; "))),
    })
}

/// What is committed survives a power cut only so.
fn setting(name: &str, value: &str) -> Finding {
    if name == "asynchronous_replicas" && value != "0" {
        let found = format!(
            "{value}: a failover to one forgets what it has not got, unless synchronous_standby_names says otherwise"
        );
        return finding(name, "warning", found);
    }
    let durable = match name {
        "fsync" | "full_page_writes" => value == "on",
        "synchronous_commit" => value != "off",
        "journal_mode" => value == "wal",
        // 2 is FULL, 3 is EXTRA.
        "synchronous" => ["2", "3"].contains(&value),
        _ => true,
    };
    match durable {
        true => finding(name, "ok", value),
        false => {
            finding(name, "wrong", format!("{value}: what was committed can be lost when the power fails"))
        }
    }
}

fn clock(database: Timestamp) -> Finding {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let here = i64::try_from(here.as_micros()).unwrap_or(i64::MAX);
    let skew = Duration::from_micros(here.abs_diff(database.as_micros()));
    match skew > SKEW_MAX {
        true => finding("clock", "warning", format!("the database is {} from this machine", duration(skew))),
        false => finding("clock", "ok", "that of the database and that of this machine agree"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_power_cut_would_lose_is_wrong() {
        for (name, value, verdict) in [
            ("fsync", "on", "ok"),
            ("fsync", "off", "wrong"),
            ("synchronous_commit", "off", "wrong"),
            ("synchronous_commit", "local", "ok"),
            ("journal_mode", "delete", "wrong"),
            ("synchronous", "1", "wrong"),
            ("synchronous", "2", "ok"),
            ("server_version", "15.1", "ok"),
            ("asynchronous_replicas", "0", "ok"),
            ("asynchronous_replicas", "1", "warning"),
        ] {
            assert_eq!(setting(name, value).verdict, verdict, "{name} {value}");
        }
        assert_eq!(clock(Timestamp::from_micros(0)).verdict, "warning");
    }
}
