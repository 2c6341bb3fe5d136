//! Whether a JetStream stream keeps its messages as long as needed, and no longer.
use crate::{
    finding::{Finding, ok, warning, wrong},
    output::{brief, counted, duration, plain},
    stream::{Server, StreamArguments},
};
use clap::Args;
use std::{path::PathBuf, time::Duration};
use twinbox_core::Timestamp;
use twinbox_nats::{
    DiskSync, ErrorKind, StreamAddress, StreamCluster, StreamCopy, StreamStatus, SubjectLimit,
};
use twinbox_ops::replays::PurgeMark;

#[derive(Debug, Args)]
#[command(next_help_heading = "NATS")]
pub(crate) struct NatsArguments {
    #[command(flatten)]
    stream: StreamArguments,
    /// The server with a user of its system account. Only that user can read the sync settings.
    #[arg(long, value_name = "URL", env = "NATS_SYSTEM_URL", hide_env_values = true)]
    nats_system_url: Option<String>,
    /// The credentials file of that user.
    #[arg(long, value_name = "FILE")]
    nats_system_credentials: Option<PathBuf>,
}

impl NatsArguments {
    /// `recorded`: the addresses that relays and consumers have recorded.
    pub(super) async fn check<'a>(
        &self,
        recorded: impl Iterator<Item = &'a str>,
        inboxes: &[PurgedInbox],
        now: Timestamp,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(server) = self.stream.server() {
            if let Ok(warnings) = async { server.connect()?.warnings().await }.await {
                findings.extend(warnings.iter().map(|found| warning("connection to NATS", found)));
            }
            let addresses = self.stream.addresses(recorded);
            if addresses.is_empty() {
                let found = "no relay and no consumer has recorded one here: name it with --nats-stream";
                findings.push(warning("streams of NATS", found));
            }
            for address in addresses {
                findings.extend(self.check_stream(server, address, inboxes, now).await);
            }
        }
        if let Some(url) = &self.nats_system_url {
            let server = self.stream.server_at(url, self.nats_system_credentials.as_ref());
            match async { server.connect()?.disk_syncs().await }.await {
                Ok(servers) if servers.is_empty() => {
                    findings.push(wrong("NATS sync", "no server with JetStream has responded"));
                }
                Ok(servers) => findings.extend(servers.iter().map(sync)),
                Err(error) => findings.push(wrong("NATS sync", error.to_string())),
            }
        } else if self.stream.server().is_some() {
            let found = format!("unknown without --nats-system-url: {LOSS}");
            findings.push(warning("NATS sync", found));
        }
        findings
    }

    async fn check_stream(
        &self,
        server: Server<'_>,
        address: StreamAddress,
        inboxes: &[PurgedInbox],
        now: Timestamp,
    ) -> Vec<Finding> {
        let about = format!("stream {}", plain(&address.stream));
        let of_stream = |inbox: &&PurgedInbox| {
            let recorded = inbox.address.as_deref().and_then(|text| text.parse::<StreamAddress>().ok());
            recorded.is_none_or(|recorded| recorded.stream == address.stream)
        };
        let inboxes = Vec::from_iter(inboxes.iter().filter(of_stream));
        let given = match server.stream(address.clone()) {
            Ok(given) => given,
            Err(error) => return vec![wrong(&about, error.to_string())],
        };
        let mut findings = Vec::new();
        for one in given.each_stream() {
            match one.stream_status().await {
                Ok(facts) => findings.extend(stream(&facts, &inboxes, now)),
                // It may be at another server.
                Err(error) if error.kind() == ErrorKind::Missing && !self.stream.is_named() => {
                    findings.push(warning(&about, format!("{error}; a relay or a consumer has recorded it")));
                }
                Err(error) => findings.push(wrong(&about, error.to_string())),
            }
        }
        findings
    }
}

/// A consumer whose claims were purged.
pub(super) struct PurgedInbox {
    pub(super) mark: PurgeMark,
    /// Whether the consumer reads the log instead of a stream.
    pub(super) reads_log: bool,
    /// Where it has its messages, as it recorded.
    pub(super) address: Option<String>,
}

const LOSS: &str = "unless `sync_interval` is `always`, a power cut loses acknowledged messages, and \
    `twinbox replays run resend` restores them";

fn sync(server: &DiskSync) -> Finding {
    let what = format!("NATS sync of {}", server.server);
    match server.before_ack {
        true => ok(&what, "it syncs before it acknowledges"),
        false => warning(&what, format!("it syncs every {}: {LOSS}", duration(server.interval))),
    }
}

fn stream(facts: &StreamStatus, inboxes: &[&PurgedInbox], now: Timestamp) -> Vec<Finding> {
    let what = format!("stream {}", facts.name);
    if let Some(StreamCluster { leader: None, copies, .. }) = &facts.cluster {
        let found = format!(
            "it has no leader, and neither takes nor gives messages: more than half of its {} servers have \
             to run",
            facts.replicas
        );
        let mut findings = vec![wrong(&what, found)];
        findings.extend(copies.iter().filter(|copy| copy.is_away).map(|copy| away(&what, copy)));
        return findings;
    }
    let kept = facts.max_age.map_or("for ever".to_owned(), |age| format!("for {}", duration(age)));
    let mut findings = vec![ok(
        &what,
        format!("{}, kept {kept}, on NATS {}", counted(facts.messages, "message"), facts.server_version),
    )];
    if !facts.in_files {
        findings.push(wrong(&what, "it is in memory: a restart of its server loses it"));
    }
    if facts.drops_oldest {
        let found =
            "it has a limit and drops its oldest message when full, handled or not: set `discard: new`";
        findings.push(wrong(&what, found));
    }
    findings.extend(facts.subject_limit.map(|limit| of_subject(&what, limit)));
    if !facts.keeps_acknowledged {
        let found = "it deletes messages that are acknowledged or have no consumer: set `retention: limits`";
        findings.push(wrong(&what, found));
    }
    findings.extend(facts.option_faults.iter().map(|found| wrong(&what, found)));
    findings.extend(facts.option_warnings.iter().map(|found| warning(&what, found)));
    findings.extend(copies(&what, facts));
    if facts.takes_batches == Some(false) {
        let found =
            "it takes no batches, so the messages of one key wait for each other: set `allow_batched`";
        findings.push(warning(&what, found));
    }
    for PurgedInbox { mark, reads_log, .. } in inboxes {
        let age = u64::try_from(now.as_micros().saturating_sub(mark.time.as_micros())).unwrap_or(0);
        if facts.max_age.is_some_and(|max_age| Duration::from_micros(age) >= max_age) {
            continue;
        }
        let found = format!(
            "it keeps messages {kept}, but the inbox of {} is purged up to {}: a redelivery becomes a dead \
             letter with the reason `in_doubt`",
            mark.consumer,
            brief(&mark.time.to_string())
        );
        match (facts.has_durable(&mark.consumer), reads_log) {
            (true, _) => findings.push(wrong(&what, found)),
            (false, false) => findings.push(warning(&what, format!("{found}, if it reads this stream"))),
            (false, true) => {}
        }
    }
    findings
}

fn of_subject(what: &str, limit: SubjectLimit) -> Finding {
    let most = counted(limit.messages, "message");
    if limit.drops_oldest {
        let found = format!(
            "it keeps {most} of each subject, a type in a partition, and drops the oldest for a new one, \
             handled or not: remove `max_msgs_per_subject`"
        );
        return wrong(what, found);
    }
    let found = format!(
        "it takes {most} of each subject, a type in a partition, and refuses more: the relay parks them \
         until older ones are gone. Remove `max_msgs_per_subject`"
    );
    warning(what, found)
}

/// The findings about the copies of a stream.
fn copies(what: &str, facts: &StreamStatus) -> Vec<Finding> {
    let restored = "a lost disk loses it, and `twinbox replays run resend` restores it";
    let Some(cluster) = &facts.cluster else {
        return match facts.replicas {
            1 => vec![warning(what, format!("it has one copy: {restored}"))],
            _ => Vec::new(),
        };
    };
    if facts.replicas == 1 {
        let found = format!(
            "it has one copy, though its server {} is in the cluster {}: while that server is away it takes \
             and gives no message, and {restored}. Set `num_replicas: 3`",
            cluster.leader.as_deref().unwrap_or_default(),
            cluster.name
        );
        return vec![warning(what, found)];
    }
    let mut findings = Vec::new();
    let found = 1 + cluster.copies.len();
    if found < facts.replicas {
        let found = format!(
            "it has {found} of {} copies: the cluster {} needs as many servers with room for one",
            facts.replicas, cluster.name
        );
        findings.push(wrong(what, found));
    }
    for copy in &cluster.copies {
        if copy.is_away {
            findings.push(away(what, copy));
        } else if copy.lag > 0 {
            let found = format!(
                "its copy on {} is {} behind its leader: see load, disk and network of that server",
                copy.server,
                counted(copy.lag, "operation")
            );
            findings.push(warning(what, found));
        }
    }
    findings
}

fn away(what: &str, copy: &StreamCopy) -> Finding {
    let behind = match copy.lag {
        0 => String::new(),
        lag => format!(", and {} behind", counted(lag, "operation")),
    };
    let found = format!(
        "its copy on {} is offline{behind}: start that server, or move the copy to another one with \
         `nats stream cluster peer-remove`",
        copy.server
    );
    wrong(what, found)
}
