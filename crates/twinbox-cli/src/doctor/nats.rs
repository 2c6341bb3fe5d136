//! Whether a stream keeps what it was given, for as long as it is needed and no longer.
use super::{Finding, finding};
use crate::output::{brief, counted, duration};
use clap::Args;
use std::{path::PathBuf, time::Duration};
use twinbox_core::Timestamp;
use twinbox_nats::{Nats, NatsOptions, StreamFacts, SyncFacts};
use twinbox_sql::replay::PurgeMark;

#[derive(Debug, Args)]
#[command(next_help_heading = "NATS")]
pub(crate) struct NatsArguments {
    /// The server whose stream is looked at, and its stream. A password is better kept in the environment.
    #[arg(long, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    nats_url: Option<String>,
    /// The credentials for it.
    #[arg(long, value_name = "FILE")]
    nats_credentials: Option<PathBuf>,
    /// What its certificate is signed by.
    #[arg(long, value_name = "FILE")]
    nats_ca: Option<PathBuf>,
    /// The name of the stream.
    #[arg(long, value_name = "NAME", default_value = "EVENTS")]
    nats_stream: String,
    /// What its subjects begin with.
    #[arg(long, value_name = "PREFIX", default_value = "events")]
    nats_prefix: String,
    /// The same server for a user of its system account, who alone is told how it syncs.
    #[arg(long, value_name = "URL", env = "NATS_SYSTEM_URL", hide_env_values = true)]
    nats_system_url: Option<String>,
    /// The credentials of that user.
    #[arg(long, value_name = "FILE")]
    nats_system_credentials: Option<PathBuf>,
}

impl NatsArguments {
    fn at(&self, url: &str, credentials: Option<&PathBuf>) -> Result<Nats, twinbox_nats::Error> {
        let mut options = NatsOptions::new(url).stream(&self.nats_stream).prefix(&self.nats_prefix);
        if let Some(file) = credentials {
            options = options.credentials_file(file);
        }
        if let Some(file) = &self.nats_ca {
            options = options.ca_file(file);
        }
        Nats::with_options(options)
    }

    /// `forgotten`: up to when consumers may have forgotten what they handled, and whether they read the log.
    pub(super) async fn look(&self, forgotten: &[(PurgeMark, bool)], now: Timestamp) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(url) = &self.nats_url {
            let facts = async { self.at(url, self.nats_credentials.as_ref())?.stream_facts().await };
            match facts.await {
                Ok(facts) => findings.extend(judge(&facts, forgotten, now)),
                Err(error) => findings.push(finding(&self.title(), "wrong", error.to_string())),
            }
        }
        match (&self.nats_system_url, &self.nats_url) {
            (Some(url), _) => {
                let facts = async { self.at(url, self.nats_system_credentials.as_ref())?.sync_facts().await };
                match facts.await {
                    Ok(servers) if servers.is_empty() => {
                        findings.push(finding("NATS sync", "wrong", "no server that answers has JetStream"));
                    }
                    Ok(servers) => findings.extend(servers.iter().map(synced)),
                    Err(error) => findings.push(finding("NATS sync", "wrong", error.to_string())),
                }
            }
            (None, Some(_)) => findings.push(finding(
                "NATS sync",
                "warning",
                format!("not to be seen without --nats-system-url: {LOST}"),
            )),
            (None, None) => {}
        }
        findings
    }

    fn title(&self) -> String {
        format!("stream {}", self.nats_stream)
    }
}

const LOST: &str = "unless `sync_interval` is `always`, a power cut takes what was acknowledged, and `replay resend` \
    brings it back";

fn synced(server: &SyncFacts) -> Finding {
    let what = format!("NATS sync of {}", server.server);
    match server.always {
        true => finding(&what, "ok", "it syncs before it acknowledges"),
        false => finding(&what, "warning", format!("it syncs every {}: {LOST}", duration(server.interval))),
    }
}

fn judge(facts: &StreamFacts, forgotten: &[(PurgeMark, bool)], now: Timestamp) -> Vec<Finding> {
    let what = format!("stream {}", facts.name);
    let kept = facts.max_age.map_or("for ever".to_owned(), |age| format!("for {}", duration(age)));
    let mut findings = vec![finding(
        &what,
        "ok",
        format!("{}, kept {kept}, on NATS {}", counted(facts.messages, "message"), facts.server_version),
    )];
    let mut add = |verdict, found: &str| findings.push(finding(&what, verdict, found));
    if !facts.in_files {
        add("wrong", "it is kept in memory: a restart of its server loses it");
    }
    if facts.drops_oldest {
        add(
            "wrong",
            "it is bounded and drops its oldest message when it is full, handled or not: `discard: new`",
        );
    }
    if !facts.keeps_acknowledged {
        add("wrong", "it deletes what is acknowledged or wanted by nobody: `retention: limits`");
    }
    if facts.replicas == 1 {
        add(
            "warning",
            "there is one copy of it: with its disk it is gone, and `replay resend` brings it back",
        );
    }
    for (mark, reads_log) in forgotten {
        let age = u64::try_from(now.as_micros().saturating_sub(mark.time.as_micros())).unwrap_or(0);
        if facts.max_age.is_some_and(|max_age| Duration::from_micros(age) >= max_age) {
            continue;
        }
        let found = format!(
            "it keeps messages {kept}, and {} has forgotten those up to {}: what is delivered again becomes a dead \
             letter, `in_doubt`",
            mark.consumer,
            brief(&mark.time.to_string())
        );
        match (facts.is_read_by(&mark.consumer), reads_log) {
            (true, _) => add("wrong", &found),
            (false, false) => add("warning", &format!("{found}, if it reads this stream")),
            (false, true) => {}
        }
    }
    findings
}
