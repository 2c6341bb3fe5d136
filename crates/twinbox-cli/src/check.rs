//! Whether a build can read what waits for it.
use crate::{
    exit::{Exit, bad},
    output::{Output, counted, plain},
    place::Place,
    time::{When, resolve},
};
use clap::Args;
use serde::Serialize;
use std::{io::Read as _, path::PathBuf};
use twinbox_core::Manifest;
use twinbox_sql::{Dialect, Standing, Store, Unread};

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// What the build can read, as the JSON of `Consumer::manifest`. `-` is standard input.
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// The database, instead of --database-url.
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// Also what was published since then: a broker may still keep it for consumers.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
}

#[derive(Serialize)]
struct Finding {
    standing: &'static str,
    /// A destination, or `consumer:NAME`. Empty: on the way to nobody yet.
    of: String,
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
    let unread = store.unread(resolve(arguments.since, store).await?).await?;
    let (mut findings, mut readable) = (Vec::new(), 0);
    for one in &unread {
        let problems = problems(&manifest, one);
        readable += if problems.is_empty() { one.messages } else { 0 };
        findings.extend(problems.into_iter().map(|(consumer, problem)| Finding {
            standing: one.standing.as_str(),
            of: one.of.clone(),
            consumer: consumer.to_owned(),
            event_type: one.event_type.clone(),
            version: one.version,
            codec: one.codec.clone(),
            messages: one.messages,
            example: one.example.clone(),
            problem,
        }));
    }
    let none = format!(
        "Nothing waits that this build cannot read; {} it can, or leaves to others.",
        counted(readable, "message")
    );
    output.told(&findings, &none, |finding| plain(&told(finding)));
    if findings.is_empty() {
        return Ok(());
    }
    Err(Exit::unreadable("this build would give up what waits for it: deploy one that can read it"))
}

/// Consumers of the build that would get such messages and could not read them, and why.
fn problems<'m>(manifest: &'m Manifest, unread: &Unread) -> Vec<(&'m str, String)> {
    let consumer = unread.of.strip_prefix("consumer:");
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
    let at = match (finding.standing, &*finding.of) {
        (standing, "") => standing.to_owned(),
        (standing, of) => format!("{standing} at {of}"),
    };
    format!(
        "{} of {} version {}, {at}\n    for {}: {}\n    one of them: {}",
        counted(finding.messages, "message"),
        finding.event_type,
        finding.version,
        finding.consumer,
        finding.problem,
        finding.example
    )
}
