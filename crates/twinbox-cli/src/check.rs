//! Whether a build can read what waits for it.
use crate::{
    exit::{Exit, bad},
    output::{Output, counted, note, plain},
    place::Place,
    time::{When, resolve},
};
use clap::Args;
use serde::Serialize;
use std::{collections::BTreeSet, io::Read as _, path::PathBuf};
use twinbox_core::Manifest;
use twinbox_sql::{Dialect, Standing, Store, Unread};

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// What the build can read, as the JSON of `Consumer::manifest`. `-` is standard input.
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// The database, instead of --database-url. A password is better kept in the environment, or in a file.
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// Also what was published and says that it is from then or later: a broker may still keep it for consumers, for as
    /// long as its stream or queue does.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
}

#[derive(Serialize)]
struct Finding {
    standing: &'static str,
    /// A destination, or `consumer:NAME`. None: on the way to nobody yet.
    of: Option<String>,
    consumer: String,
    event_type: String,
    version: u32,
    codec: Option<String>,
    messages: u64,
    example: String,
    problem: String,
}

impl CheckArguments {
    /// The database that was asked for.
    pub(crate) fn place(&self, place: Place) -> Place {
        self.against.as_ref().map_or(place.clone(), |url| place.elsewhere(url))
    }

    fn manifest(&self) -> Result<Manifest, Exit> {
        let mut json = String::new();
        let read = match self.manifest.as_os_str() == "-" {
            true => std::io::stdin().lock().read_to_string(&mut json),
            false => std::fs::File::open(&self.manifest).and_then(|mut file| file.read_to_string(&mut json)),
        };
        let what = format!("the manifest {}", self.manifest.display());
        read.map_err(|error| bad(&what, error))?;
        Manifest::from_json(&json).map_err(|error| bad(&what, error))
    }
}

pub(crate) async fn run<DB: Dialect>(
    arguments: CheckArguments,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    let manifest = arguments.manifest()?;
    let since = resolve(arguments.since, store).await?;
    let unread = store.unread(since).await?;
    let findings = Vec::from_iter(unread.iter().flat_map(|one| {
        problems(&manifest, one).into_iter().map(|(consumer, problem)| Finding {
            standing: one.standing.as_str(),
            of: one.of.clone(),
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
            "Not looked at without --since: what brokers keep for their consumers, and for a consumer that has never \
             read this log what is in it.",
        );
    }
    let strangers = BTreeSet::from_iter(unread.iter().filter_map(consumer_of));
    let strangers =
        Vec::from_iter(strangers.into_iter().filter(|name| !manifest.consumers().any(|own| own == *name)));
    if !strangers.is_empty() {
        note(&format!("Not of this build, and not looked at: {}.", strangers.join(", ")));
    }
    output.told(&findings, "Nothing waits that this build cannot read.", |finding| plain(&told(finding)));
    if findings.is_empty() {
        return Ok(());
    }
    Err(Exit::unreadable("this build would give up what waits for it: deploy one that can read it"))
}

fn consumer_of(unread: &Unread) -> Option<&str> {
    unread.of.as_deref()?.strip_prefix("consumer:")
}

/// Consumers of the build that would get such messages and could not read them, and why.
fn problems<'m>(manifest: &'m Manifest, unread: &Unread) -> Vec<(&'m str, String)> {
    let consumer = consumer_of(unread);
    // What is its own already comes back even if it has no handler for it any more.
    let is_its_own = matches!(unread.standing, Standing::Parked | Standing::Dead);
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

fn told(finding: &Finding) -> String {
    let at = finding.of.as_ref().map_or(String::new(), |of| format!(" at {of}"));
    format!(
        "{} of {} version {}, {}{at}\n    for {}: {}\n    one of them: {}",
        counted(finding.messages, "message"),
        finding.event_type,
        finding.version,
        finding.standing,
        finding.consumer,
        finding.problem,
        finding.example
    )
}
