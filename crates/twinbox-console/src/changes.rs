//! The changes that an operator may make: what each would do, and doing it.
//!
//! A change is prepared twice: for its preview, and again when it is confirmed. The form carries what was
//! shown, with times that no longer move.
mod dead_letters;
mod effects;
mod readers;
mod replays;

pub(crate) use dead_letters::filter;

use crate::{
    console::App,
    failure::Failure,
    links::link,
    query::{self, shell},
};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use twinbox_ops::{
    AuditIntent, Dialect, Ops,
    dead_letters::BulkPlan,
    effects::{Change, EffectId},
    replays::{NewReplay, ReplayPlan},
};

/// The fields that name what is to be changed. Each change reads some of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    pub(crate) consumer: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) group: Option<String>,
    #[serde(rename = "type")]
    pub(crate) types: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) rate: Option<String>,
}

/// A change that could be made.
pub(crate) struct Prepared {
    pub(crate) title: &'static str,
    /// A sentence: "This will …".
    pub(crate) effect: String,
    /// The sentences that an operator must not overlook.
    pub(crate) warnings: Vec<String>,
    /// The newest or first things that would change: columns and rows.
    pub(crate) sample: Sample,
    /// The command that does the same. Empty: there is none.
    pub(crate) command: String,
    /// The command and the changed thing, for the audit.
    pub(crate) audit: &'static str,
    pub(crate) target: String,
    /// The fields of the form.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) needs_reason: bool,
    /// Why there is nothing to do.
    pub(crate) nothing: Option<String>,
    pub(crate) deed: Deed,
}

/// A table.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) caption: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// What a change calls.
pub(crate) enum Deed {
    Bulk(BulkPlan, Duration),
    CancelBulk(i64),
    PauseDestination(String),
    ResumeDestination(String),
    PauseConsumer(String),
    ResumeConsumer(String),
    PauseVendor(String),
    ResumeVendor(String),
    Replay(Box<ReplayPlan>, Option<String>, Option<u32>),
    PauseReplay(i64),
    ResumeReplay(i64),
    CancelReplay(i64),
    Effect(EffectId, Change),
    UnblockKey(String, String),
    SkipMessage(String, String),
    RetryParked(String, Option<String>),
}

/// Reads the fields of a change and looks what it would do.
pub(crate) async fn prepare<DB: Dialect>(
    app: &Arc<App<DB>>,
    verb: &str,
    fields: &Fields,
) -> Result<Prepared, Failure> {
    match verb {
        "redrive" | "discard" => dead_letters::bulk(&app.ops, verb, fields).await,
        "cancel-bulk" => dead_letters::cancel(&app.ops, fields).await,
        "pause-destination" | "resume-destination" => readers::destination(&app.ops, verb, fields).await,
        "pause-consumer" | "resume-consumer" => readers::consumer(&app.ops, verb, fields).await,
        "pause-vendor" | "resume-vendor" => effects::vendor(verb, fields),
        "unblock-key" => readers::unblock_key(fields),
        "skip-message" => readers::skip_message(fields),
        "retry-parked" => readers::retry_parked(&app.ops, fields).await,
        "resend" | "reprocess" => replays::make(&app.ops, verb, fields).await,
        "pause-replay" | "resume-replay" | "cancel-replay" => replays::control(&app.ops, verb, fields).await,
        "retry-effect" | "resolve-effect" => effects::decide(&app.ops, verb, fields).await,
        other => Err(Failure::not_found(format!("there is no change {other:?}"))),
    }
}

/// Makes a change, with its entry in the audit, and returns the page that shows the result.
///
/// The entry is written first and gets its count last. A crash between leaves an entry without a count.
pub(crate) async fn make<DB: Dialect>(
    ops: &Ops<DB>,
    prepared: Prepared,
    operator: &str,
    reason: Option<&str>,
) -> Result<String, Failure> {
    let Prepared { audit: command, target, deed, .. } = prepared;
    let intent = AuditIntent { operator, command, target: &target, reason };
    if let Deed::Bulk(plan, spacing) = &deed {
        let made = ops.make_bulk_action(plan, *spacing, &intent).await?;
        return Ok(link("/bulk-actions", &[("id", &made.id.to_string())]));
    }
    let entry = ops.begin_audit(&intent).await?;
    let by = || reason.map_or_else(|| format!("by {operator}"), str::to_owned);
    let (count, location) = match &deed {
        Deed::Bulk(..) => (0, String::new()),
        Deed::CancelBulk(id) => {
            let cancelled = ops.cancel_bulk_action(*id).await?;
            (u64::from(cancelled), link("/bulk-actions", &[("id", &id.to_string())]))
        }
        Deed::PauseDestination(name) => {
            ops.pause_destination(name, &by()).await?;
            (1, link("/", &[("done", "paused")]))
        }
        Deed::ResumeDestination(name) => {
            ops.resume_destination(name).await?;
            (1, link("/", &[("done", "resumed")]))
        }
        Deed::PauseConsumer(name) => {
            ops.pause_consumer(name, &by()).await?;
            (1, link("/consumers", &[("name", name), ("done", "paused")]))
        }
        Deed::ResumeConsumer(name) => {
            ops.resume_consumer(name).await?;
            (1, link("/consumers", &[("name", name), ("done", "resumed")]))
        }
        Deed::PauseVendor(name) => {
            ops.pause_vendor(name, &by()).await?;
            (1, link("/effects", &[("vendor", name), ("done", "paused")]))
        }
        Deed::ResumeVendor(name) => {
            ops.resume_vendor(name).await?;
            (1, link("/effects", &[("vendor", name), ("done", "resumed")]))
        }
        Deed::Replay(plan, consumer, rate) => {
            let new = match consumer {
                Some(consumer) => NewReplay::reprocess(consumer, operator),
                None => NewReplay::resend(operator),
            };
            let new = new.rate(*rate).reason(reason.map(str::to_owned));
            let replay = ops.make_replay(plan, new).await?;
            (plan.selected, link("/replays", &[("id", &replay.id.to_string())]))
        }
        Deed::PauseReplay(id) => {
            ops.pause_replay(*id, &by()).await?;
            (1, link("/replays", &[("id", &id.to_string()), ("done", "paused")]))
        }
        Deed::ResumeReplay(id) => {
            ops.resume_replay(*id).await?;
            (1, link("/replays", &[("id", &id.to_string()), ("done", "resumed")]))
        }
        Deed::CancelReplay(id) => {
            let cancelled = ops.cancel_replay(*id).await?;
            (u64::from(cancelled), link("/replays", &[("id", &id.to_string()), ("done", "cancelled")]))
        }
        Deed::Effect(id, change) => {
            let effect = ops.change_effect(*id, *change, &by()).await?;
            (1, link("/effects", &[("id", &effect.position.to_string()), ("done", "changed")]))
        }
        Deed::UnblockKey(destination, key) => {
            let count = ops.release_key(destination, key).await?;
            (count, link("/keys", &[("key", key), ("done", "unblocked")]))
        }
        Deed::SkipMessage(destination, message) => {
            let count = ops.skip_parked(destination, message).await?;
            (count, link("/messages", &[("id", message), ("done", "skipped")]))
        }
        Deed::RetryParked(consumer, key) => {
            let count = ops.retry_parked_deliveries(consumer, key.as_deref()).await?;
            (count, link("/consumers", &[("name", consumer), ("done", "retried")]))
        }
    };
    ops.end_audit(entry, count).await?;
    Ok(location)
}

/// The sentence for a word in the address of a page.
pub(crate) fn done(word: Option<&str>) -> Option<&'static str> {
    Some(match word? {
        "paused" => "It is paused, in every process, until it is resumed.",
        "resumed" => "It is resumed.",
        "cancelled" => "It is cancelled.",
        "changed" => "The effect is changed.",
        "unblocked" => "The key is released. Its dead letters stay.",
        "skipped" => "The message is skipped. It is a dead letter now.",
        "retried" => "The parked deliveries are due now.",
        _ => return None,
    })
}

/// A field that the change needs.
pub(crate) fn required(field: &Option<String>, name: &str) -> Result<String, Failure> {
    query::given(field)?.ok_or_else(|| Failure::bad_request(format!("this change needs the field {name:?}")))
}

/// A command for a shell: the name of the command, what it is about, and an option for each field that is
/// given.
pub(crate) fn command(name: &str, about: &[&str], options: &[(&str, Option<String>)]) -> String {
    let mut words = vec!["twinbox".to_owned(), name.to_owned()];
    words.extend(options.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        // Else it would be read as an option.
        let joint = if value.starts_with('-') { "=" } else { " " };
        Some(format!("--{name}{joint}{}", shell(value)))
    }));
    if about.iter().any(|one| one.starts_with('-')) {
        words.push("--".to_owned());
    }
    words.extend(about.iter().map(|one| shell(one)));
    words.join(" ")
}

/// Fields of the form that are given.
pub(crate) fn hidden(fields: Vec<(&'static str, Option<String>)>) -> Vec<(&'static str, String)> {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_data_in_a_command() {
        let some = |text: &str| Some(text.to_owned());
        let options = [("key", some("a b")), ("group", None), ("since", some("-1"))];
        assert_eq!(command("keys list", &[], &options), "twinbox keys list --key 'a b' --since=-1");
        assert_eq!(command("keys unblock", &["--yes"], &[]), "twinbox keys unblock -- --yes");
        assert_eq!(command("effects retry", &["7"], &[]), "twinbox effects retry 7");
    }
}
