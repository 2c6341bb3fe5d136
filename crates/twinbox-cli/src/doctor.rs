//! `twinbox doctor`.
#[cfg(feature = "aws")]
mod aws;
mod effects;
#[cfg(feature = "nats")]
mod nats;

use crate::{
    exit::Exit,
    finding::{self, Finding, ok, warning, wrong},
    grants::{check_rights, check_roles, check_tables, parse_role},
    operations::short,
    output::{brief, counted, duration, plain},
    session::Session,
};
use clap::Args;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use twinbox_core::{Timestamp, endpoint::Protection};
use twinbox_ops::{ConsumerInfo, ReaderStatus, Role};
use twinbox_sql::{Dialect, Store, engine::HOLES_MAX, replay::Replay};

/// The clocks of the database and of this machine may differ by this.
const SKEW_MAX: Duration = Duration::from_secs(5);
/// A running consumer is seen more often than this.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The log is kept for an unfinished replay. After this time that is suspicious.
const REPLAY_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// A caller retries an unfinished request sooner than this.
const UNFINISHED_AGE_MAX: Duration = Duration::from_secs(3600);
/// The number of unfinished requests that a finding names.
const UNFINISHED_NAMED: u32 = 3;

/// Seconds. A pool keeps idle connections for longer than a shorter time.
const WAIT_TIMEOUT_MIN: u64 = 60;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Also check the rights of a database role, what it lacks and what it has too much: its name and
    /// `producer`, `web`, `runtime`, `keeper`, `operator`, `redactor` or `viewer`. Repeatable. Your own
    /// rights are checked as `operator`.
    #[arg(long = "role", value_name = "NAME=PURPOSE", value_parser = parse_role)]
    roles: Vec<(String, Role)>,
    #[cfg(feature = "nats")]
    #[command(flatten)]
    nats: nats::NatsArguments,
    #[cfg(feature = "aws")]
    #[command(flatten)]
    aws: aws::AwsArguments,
}

/// Opening the session has already checked the tables, their service, the sentinel, the sequence and the
/// pooler.
pub(crate) async fn run<DB: Dialect>(arguments: &DoctorArguments, session: &Session<DB>) -> Result<(), Exit> {
    let (store, ops) = (&session.store, &session.ops);
    let version = store.schema_version().await?;
    let mut findings = vec![
        ok("tables", format!("version {version} of service {:?}", store.service())),
        ok("log", "its positions follow its commits"),
    ];
    findings.extend(ops.server_settings().await?.into_iter().map(|(name, value)| setting(&name, &value)));
    if DB::ONE_WRITER {
        let found = "each connection sets its own, which others do not see: keep FULL or EXTRA";
        findings.push(ok("synchronous", found));
    } else {
        findings.push(match session.connection.has_pooler() {
            true => ok("pooler", "every statement is unnamed and in a transaction, because of --pooler"),
            false => ok("pooler", "no pooler in transaction mode was found; use --pooler if there is one"),
        });
    }
    findings.push(match DB::protection(&store.pool().connect_options(), true) {
        Ok(Protection::Tls) => ok("connection", "TLS with a verified certificate protects it"),
        Ok(protection) => match protection.warning() {
            Some(found) => warning("connection", found),
            None => ok("connection", "it stays on this machine"),
        },
        Err(refused) => wrong("connection", refused.to_string()),
    });
    findings.push(clock(store.now().await?));
    findings.push(check_rights(ops, None, Role::Operator).await?);
    findings.extend(check_roles(ops, &arguments.roles).await?);
    findings.extend(check_tables(ops).await?);
    let readers = ops.readers().await?;
    if readers.is_empty() {
        findings.push(warning("destinations", "none has ever run here: published messages go nowhere"));
    }
    findings.extend(readers.iter().map(destination));
    let consumers = ops.consumers().await?;
    findings.extend(consumers.iter().map(consumer));
    let now = store.now().await?;
    let replays = ops.replays(100).await?;
    findings.extend(replays.iter().filter(|one| !one.state.has_ended()).map(|one| replay(one, now)));
    findings.push(operations(store, now).await?);
    findings.extend(effects::check(ops).await?);
    let purge_marks = ops.purge_marks_since(Timestamp::from_micros(0)).await?;
    for mark in &purge_marks {
        let found = format!("purged up to messages of {}", brief(&mark.time.to_string()));
        findings.push(ok(&format!("inbox of {}", mark.consumer), found));
    }
    #[cfg(feature = "nats")]
    {
        let inboxes = purge_marks.into_iter().map(|mark| {
            let own = format!("consumer:{}", mark.consumer);
            let reads_log = readers.iter().any(|reader| reader.name == own);
            let consumer = consumers.iter().find(|one| one.consumer == mark.consumer);
            let address = consumer.and_then(|consumer| consumer.address.clone());
            nats::PurgedInbox { mark, reads_log, address }
        });
        let of_readers = readers.iter().filter_map(|reader| reader.address.as_deref());
        let recorded = of_readers.chain(consumers.iter().filter_map(|one| one.address.as_deref()));
        findings.extend(arguments.nats.check(recorded, &Vec::from_iter(inboxes), now).await);
    }
    #[cfg(feature = "aws")]
    findings.extend(arguments.aws.check().await);
    finding::print(&findings, &session.output)
}

fn destination(reader: &ReaderStatus) -> Finding {
    let name = format!("destination {}", reader.name);
    match reader {
        reader if reader.is_detached => wrong(&name, "detached: retire it, then start it again"),
        reader if reader.blocking > 0 => wrong(&name, "blocked by a dead letter: redrive or skip it"),
        reader if reader.lease.is_none() => {
            let unowned = duration(reader.unowned);
            wrong(&name, format!("no process has run it for {unowned}, and the log is kept for it"))
        }
        reader => match &reader.pause_reason {
            Some(reason) => warning(&name, format!("paused: {}", brief(&plain(reason)))),
            None => ok(&name, format!("its oldest message has waited {}", duration(reader.oldest))),
        },
    }
}

fn consumer(consumer: &ConsumerInfo) -> Finding {
    let (name, silent) = (format!("consumer {}", consumer.consumer), duration(consumer.silent));
    match &consumer.pause_reason {
        Some(reason) => warning(&name, format!("paused: {}", brief(&plain(reason)))),
        None if consumer.silent > SILENCE_MAX => warning(&name, format!("last seen {silent} ago")),
        None => ok(&name, format!("last seen {silent} ago")),
    }
}

fn replay(replay: &Replay, now: Timestamp) -> Finding {
    let age = now.as_micros().saturating_sub(replay.made_at.as_micros());
    let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
    let (state, what) = (replay.state.as_str(), format!("replay {}", replay.id));
    let found = format!("{state}, made {} ago, and the log is kept for it", duration(age));
    if age > REPLAY_AGE_MAX { warning(&what, found) } else { ok(&what, found) }
}

/// Requests that called a vendor, or may have, and never finished.
async fn operations<DB: Dialect>(store: &Store<DB>, now: Timestamp) -> Result<Finding, Exit> {
    const WHAT: &str = "unfinished operations";
    let count = store.idempotency_keys().count_unfinished().await?;
    let oldest = store.idempotency_keys().unfinished(UNFINISHED_NAMED).await?;
    let Some(first) = oldest.first() else { return Ok(ok(WHAT, "none")) };
    let age = now.as_micros().saturating_sub(first.updated_at.as_micros());
    let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
    let names = Vec::from_iter(oldest.iter().map(|one| format!("{} of {}", short(&one.slot), one.scope)));
    let found = format!(
        "{}: their effects outside are unknown. The oldest was tried {} ago: {}. See `twinbox operations \
         list`",
        counted(count, "request"),
        duration(age),
        brief(&plain(&names.join(", "))),
    );
    Ok(match oldest.iter().any(|one| one.has_expired) {
        true => wrong(WHAT, found),
        false if age > UNFINISHED_AGE_MAX => warning(WHAT, found),
        false => ok(WHAT, found),
    })
}

/// A setting of the database, or a count of what it holds. Commits survive a power cut only with the right
/// settings.
fn setting(name: &str, value: &str) -> Finding {
    let number = value.parse::<u64>().unwrap_or_default();
    let is_on = number > 0 || ["on", "detect_and_recover"].contains(&value.to_ascii_lowercase().as_str());
    let power_cut = "a power cut can lose committed transactions";
    match name {
        "fsync" | "full_page_writes" if value != "on" => wrong(name, format!("{value}: {power_cut}")),
        "synchronous_commit" if value == "off" => wrong(name, format!("{value}: {power_cut}")),
        "journal_mode" if value != "wal" => wrong(name, format!("{value}: {power_cut}")),
        "innodb_flush_log_at_trx_commit" | "sync_binlog" if value != "1" => {
            wrong(name, format!("{value}: {power_cut}"))
        }
        "innodb_doublewrite" if !is_on => wrong(name, format!("{value}: {power_cut}")),
        "binlog_format" if value.eq_ignore_ascii_case("statement") => wrong(
            name,
            format!("{value}: the server refuses writes in READ COMMITTED: set it to ROW or MIXED"),
        ),
        "wait_timeout" if number < WAIT_TIMEOUT_MIN => {
            warning(name, format!("{value}: connections that are idle for so many seconds are closed"))
        }
        "idle_transaction_timeout" if is_on => warning(
            name,
            format!(
                "{value}: in a transaction it counts in the place of wait_timeout, and a process that falls \
                 silent holds its rows for so many seconds. Set it to 0, and with it \
                 idle_write_transaction_timeout and idle_readonly_transaction_timeout"
            ),
        ),
        "wsrep_on" if is_on => warning(name, "a Galera cluster: use one node for writes"),
        "asynchronous_replicas" if is_on => warning(
            name,
            format!(
                "{value}: a failover to one loses its missing commits, unless synchronous_standby_names \
                 prevents that"
            ),
        ),
        "replicas" if is_on => warning(
            name,
            format!(
                "{value}: a failover to one loses its missing commits, unless replication is \
                 semi-synchronous with the wait point AFTER_SYNC"
            ),
        ),
        "open_holes" if number >= HOLES_MAX as u64 => wrong(
            name,
            format!(
                "{value}: readers wait until some are closed. End the transactions that are open for long"
            ),
        ),
        "open_holes" if number >= HOLES_MAX as u64 / 5 => warning(
            name,
            format!("{value} of {HOLES_MAX}: so many transactions are open, or were rolled back just now"),
        ),
        _ => ok(name, value),
    }
}

fn clock(database: Timestamp) -> Finding {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let here = i64::try_from(here.as_micros()).unwrap_or(i64::MAX);
    let skew = Duration::from_micros(here.abs_diff(database.as_micros()));
    match skew > SKEW_MAX {
        true => warning(
            "clock",
            format!("the clocks of the database and this machine differ by {}", duration(skew)),
        ),
        false => ok("clock", "the clocks of the database and this machine agree"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_loses_commits_in_a_power_cut_is_wrong() {
        for (name, value, verdict) in [
            ("fsync", "on", "ok"),
            ("fsync", "off", "wrong"),
            ("synchronous_commit", "off", "wrong"),
            ("synchronous_commit", "local", "ok"),
            ("journal_mode", "delete", "wrong"),
            ("server_version", "15.1", "ok"),
            ("asynchronous_replicas", "0", "ok"),
            ("asynchronous_replicas", "1", "warning"),
            ("innodb_flush_log_at_trx_commit", "2", "wrong"),
            ("innodb_doublewrite", "1", "ok"),
            ("innodb_doublewrite", "OFF", "wrong"),
            ("innodb_doublewrite", "DETECT_AND_RECOVER", "ok"),
            ("innodb_doublewrite", "DETECT_ONLY", "wrong"),
            ("sync_binlog", "0", "wrong"),
            ("binlog_format", "STATEMENT", "wrong"),
            ("binlog_format", "MIXED", "ok"),
            ("wait_timeout", "28800", "ok"),
            ("wait_timeout", "30", "warning"),
            ("idle_transaction_timeout", "0", "ok"),
            ("idle_transaction_timeout", "3600", "warning"),
            ("replicas", "0", "ok"),
            ("replicas", "1", "warning"),
            ("wsrep_on", "0", "ok"),
            ("wsrep_on", "1", "warning"),
            ("open_holes", "12", "ok"),
            ("open_holes", "1000", "warning"),
            ("open_holes", "5000", "wrong"),
        ] {
            assert_eq!(setting(name, value).verdict(), verdict, "{name} {value}");
        }
        assert_eq!(clock(Timestamp::from_micros(0)).verdict(), "warning");
    }
}
