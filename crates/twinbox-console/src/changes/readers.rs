//! Pausing and resuming destinations and consumers, and what they have parked.
use super::{
    fields::{Fields, command, hidden, required},
    prepared::{Deed, Prepared, Sample},
};
use crate::{failure::Failure, query};
use twinbox_ops::{
    Dialect, Ops,
    wording::{number, plain},
};

/// A change of one named thing, without a preview of rows.
fn simple(title: &'static str, effect: String, audit: &'static str, target: &str, deed: Deed) -> Prepared {
    Prepared {
        title,
        effect,
        warnings: Vec::new(),
        sample: Sample::default(),
        command: command(audit, &[target], &[]),
        audit,
        target: target.to_owned(),
        fields: vec![("name", target.to_owned())],
        needs_reason: false,
        nothing: None,
        deed,
    }
}

pub(super) async fn destination<DB: Dialect>(
    ops: &Ops<DB>,
    verb: &str,
    fields: &Fields,
) -> Result<Prepared, Failure> {
    let name = required(&fields.name, "name")?;
    let readers = ops.readers().await?;
    let Some(reader) = readers.iter().find(|reader| reader.name == name) else {
        return Err(Failure::not_found(format!("no destination {:?} has ever run here", plain(&name))));
    };
    let shown = plain(&name);
    Ok(match verb {
        "pause-destination" => Prepared {
            needs_reason: true,
            nothing: reader.pause_reason.as_ref().map(|reason| format!("It is paused: {}", plain(reason))),
            ..simple(
                "Pause a destination",
                format!("This will send nothing more to {shown} until it is resumed. No attempt is counted."),
                "destinations pause",
                &name,
                Deed::PauseDestination(name.clone()),
            )
        },
        _ => Prepared {
            nothing: reader.pause_reason.is_none().then(|| "It is not paused.".to_owned()),
            ..simple(
                "Resume a destination",
                format!("This will send messages to {shown} again."),
                "destinations resume",
                &name,
                Deed::ResumeDestination(name.clone()),
            )
        },
    })
}

pub(super) async fn consumer<DB: Dialect>(
    ops: &Ops<DB>,
    verb: &str,
    fields: &Fields,
) -> Result<Prepared, Failure> {
    let name = required(&fields.name, "name")?;
    let backlog = ops.consumer_backlog(&name).await?;
    let shown = plain(&name);
    if backlog.silent.is_none() {
        return Err(Failure::not_found(format!("no consumer {shown:?} has ever run on this database")));
    }
    Ok(match verb {
        "pause-consumer" => Prepared {
            needs_reason: true,
            nothing: backlog.pause_reason.map(|reason| format!("It is paused: {}", plain(&reason))),
            ..simple(
                "Pause a consumer",
                format!(
                    "This will give {shown} no more deliveries, in every process, until it is resumed. Those \
                     in flight finish."
                ),
                "consumers pause",
                &name,
                Deed::PauseConsumer(name.clone()),
            )
        },
        _ => Prepared {
            nothing: backlog.pause_reason.is_none().then(|| "It is not paused.".to_owned()),
            ..simple(
                "Resume a consumer",
                format!("This will give {shown} deliveries again."),
                "consumers resume",
                &name,
                Deed::ResumeConsumer(name.clone()),
            )
        },
    })
}

pub(super) fn unblock_key(fields: &Fields) -> Result<Prepared, Failure> {
    let (destination, key) = (required(&fields.destination, "destination")?, required(&fields.key, "key")?);
    Ok(Prepared {
        needs_reason: true,
        command: command("keys unblock", &[&key], &[("destination", Some(destination.clone()))]),
        target: format!("{key} at {destination}"),
        fields: vec![("destination", destination.clone()), ("key", key.clone())],
        ..simple(
            "Unblock a key",
            format!(
                "This will send the messages of the key {} behind its dead letters to {}. The dead letters \
                 stay.",
                plain(&key),
                plain(&destination)
            ),
            "keys unblock",
            &key,
            Deed::UnblockKey(destination, key.clone()),
        )
    })
}

pub(super) fn skip_message(fields: &Fields) -> Result<Prepared, Failure> {
    let (destination, message) =
        (required(&fields.destination, "destination")?, required(&fields.message, "message")?);
    Ok(Prepared {
        needs_reason: true,
        command: command("messages skip", &[&message], &[("destination", Some(destination.clone()))]),
        target: format!("{message} at {destination}"),
        fields: vec![("destination", destination.clone()), ("message", message.clone())],
        ..simple(
            "Skip a message",
            format!(
                "This will give the message {} up for {}: it becomes a dead letter, and those behind it are \
                 sent.",
                plain(&message),
                plain(&destination)
            ),
            "messages skip",
            &message,
            Deed::SkipMessage(destination, message.clone()),
        )
    })
}

pub(super) async fn retry_parked<DB: Dialect>(ops: &Ops<DB>, fields: &Fields) -> Result<Prepared, Failure> {
    let (consumer, key) = (required(&fields.consumer, "consumer")?, query::exact(&fields.key)?);
    let parked = ops.consumer_backlog(&consumer).await?.parked_deliveries;
    let of_key = key.as_ref().map(|key| format!(" of the key {}", plain(key))).unwrap_or_default();
    Ok(Prepared {
        command: command(
            "messages retry",
            &[],
            &[("consumer", Some(consumer.clone())), ("key", key.clone())],
        ),
        fields: hidden(vec![("consumer", Some(consumer.clone())), ("key", key.clone())]),
        nothing: (parked == 0).then(|| "No delivery is parked.".to_owned()),
        ..simple(
            "Retry parked deliveries",
            format!(
                "This will try the parked deliveries{of_key} of {} now. Parked: {}.",
                plain(&consumer),
                number(parked)
            ),
            "messages retry",
            &consumer,
            Deed::RetryParked(consumer.clone(), key),
        )
    })
}
