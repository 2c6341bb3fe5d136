//! `twinbox schemas check`: whether a build can read the waiting messages.
use crate::{
    connection::ConnectionArguments,
    exit::{Exit, invalid},
    output::{counted, note, plain},
    session::Session,
    time::{When, resolve},
};
use clap::Args;
use serde::Serialize;
use std::{collections::BTreeSet, io::Read as _, path::PathBuf};
use twinbox_core::Manifest;
use twinbox_ops::{Backlog, BacklogState};
use twinbox_sql::Dialect;

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The JSON of `Consumer::manifest`: the types and versions that the build can read. `-` is standard
    /// input.
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// The database, instead of --database-url. Keep a password in the environment or in a file.
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// Also check messages with a time from here on, which a broker may still keep: use the retention of its
    /// stream or queue, such as `7d`.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
}

#[derive(Serialize)]
struct Problem {
    /// `delayed`, `pending`, `parked`, `dead`, `replayed` or `published`.
    state: &'static str,
    /// A destination, or `consumer:NAME`. None: no reader yet.
    reader: Option<String>,
    consumer: String,
    event_type: String,
    version: u32,
    codec: Option<String>,
    messages: u64,
    example: String,
    problem: String,
}

impl CheckArguments {
    /// The connection to the checked database.
    pub(super) fn connection(&self, connection: ConnectionArguments) -> ConnectionArguments {
        match &self.against {
            Some(url) => connection.with_url(url),
            None => connection,
        }
    }

    fn manifest(&self) -> Result<Manifest, Exit> {
        let mut json = String::new();
        let read = match self.manifest.as_os_str() == "-" {
            true => std::io::stdin().lock().read_to_string(&mut json),
            false => std::fs::File::open(&self.manifest).and_then(|mut file| file.read_to_string(&mut json)),
        };
        let what = format!("the manifest {}", self.manifest.display());
        read.map_err(|error| invalid(&what, error))?;
        Manifest::from_json(&json).map_err(|error| invalid(&what, error))
    }
}

pub(super) async fn run<DB: Dialect>(arguments: CheckArguments, session: &Session<DB>) -> Result<(), Exit> {
    let manifest = arguments.manifest()?;
    let since = resolve(arguments.since, &session.store).await?;
    let unread = session.ops.backlog(since).await?;
    let found = Vec::from_iter(unread.iter().flat_map(|one| {
        problems(&manifest, one).into_iter().map(|(consumer, problem)| Problem {
            state: one.state.as_str(),
            reader: one.reader.clone(),
            consumer: consumer.to_owned(),
            event_type: one.event_type.clone(),
            version: one.version,
            codec: one.codec.clone(),
            messages: one.messages,
            example: one.example.clone(),
            problem,
        })
    }));
    if since.is_none() {
        note(
            "Not checked without --since: messages that brokers keep, and the log for consumers that have \
             never read \
             it.",
        );
    }
    let others = BTreeSet::from_iter(unread.iter().filter_map(consumer_of));
    let others =
        Vec::from_iter(others.into_iter().filter(|name| !manifest.consumers().any(|own| own == *name)));
    if !others.is_empty() {
        note(&format!("Not checked, because the build does not have them: {}.", others.join(", ")));
    }
    session
        .output
        .texts(&found, "The build can read all waiting messages.", |problem| plain(&render(problem)));
    if found.is_empty() {
        return Ok(());
    }
    Err(Exit::unreadable("this build would give up waiting messages: deploy one that can read them"))
}

fn consumer_of(unread: &Backlog) -> Option<&str> {
    unread.reader.as_deref()?.strip_prefix("consumer:")
}

/// The consumers of the build that would get these messages and cannot read them, each with the reason.
fn problems<'m>(manifest: &'m Manifest, unread: &Backlog) -> Vec<(&'m str, String)> {
    let consumer = consumer_of(unread);
    // A consumer gets its own parked messages and dead letters back, even without a handler for them.
    let is_its_own = matches!(unread.state, BacklogState::Parked | BacklogState::Dead);
    let concerned = manifest.consumers().filter(|name| match consumer {
        Some(consumer) if is_its_own => *name == consumer,
        Some(consumer) => *name == consumer && manifest.handles(name, &unread.event_type),
        None => manifest.handles(name, &unread.event_type),
    });
    let codec = unread.codec.as_deref();
    concerned
        .filter_map(|name| {
            Some((name, manifest.check(name, &unread.event_type, unread.version, codec).err()?))
        })
        .collect()
}

fn render(problem: &Problem) -> String {
    let at = problem.reader.as_ref().map_or(String::new(), |reader| format!(" at {reader}"));
    format!(
        "{} of {} version {}, {}{at}\n    for {}: {}\n    example: {}",
        counted(problem.messages, "message"),
        problem.event_type,
        problem.version,
        problem.state,
        problem.consumer,
        problem.problem,
        problem.example
    )
}
