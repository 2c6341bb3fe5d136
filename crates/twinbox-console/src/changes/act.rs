//! Preparing a change, and making it.
use super::{
    dead_letters, effects,
    fields::Fields,
    prepared::{Deed, Prepared},
    readers, replays,
};
use crate::{app::App, failure::Failure, links::link};
use std::sync::Arc;
use twinbox_ops::{AuditIntent, Dialect, Ops, replays::NewReplay};

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
