//! Making and controlling replays.
use super::{
    fields::{Fields, command, hidden, required},
    prepared::{Deed, Prepared, Sample},
};
use crate::{failure::Failure, query};
use twinbox_ops::{
    Dialect, Ops, Selection, Timestamp,
    wording::{counted, plain},
};

pub(super) async fn make<DB: Dialect>(
    ops: &Ops<DB>,
    verb: &str,
    fields: &Fields,
) -> Result<Prepared, Failure> {
    let (rate, _) = query::spacing(&fields.rate)?;
    let (types, key) = (query::types(&fields.types)?, query::given(&fields.key)?);
    let id = query::given(&fields.message)?;
    let since = query::time(ops, &fields.since).await?;
    let mut until = query::time(ops, &fields.until).await?;
    if since.is_none() && until.is_none() && types.is_empty() && key.is_none() && id.is_none() {
        let text = "select messages: by a time, a type, a key or an event id";
        return Err(Failure::bad_request(text));
    }
    if id.is_none() && until.is_none() {
        // Messages after the preview were not shown.
        until = Some(ops.now().await?);
    }
    let selection = Selection::new()
        .since(since)
        .until(until)
        .types(types.clone())
        .key(key.clone())
        .ids(id.clone().into_iter().collect());
    let consumer = match verb {
        "reprocess" => Some(required(&fields.consumer, "consumer")?),
        _ => None,
    };
    let destination = match (query::given(&fields.destination)?, &consumer) {
        (Some(destination), _) => destination,
        (None, Some(consumer)) => read_by(ops, consumer).await?,
        (None, None) => return Err(Failure::bad_request("name the destination")),
    };
    let plan = ops.plan_replay(&destination, &selection).await?;
    let (messages, shown) = (counted(plan.selected, "message"), plain(&destination));
    let effect = match &consumer {
        None => {
            format!("This will resend {messages} to {shown}. Consumers that have handled them skip them.")
        }
        Some(consumer) => format!(
            "This will run {messages} again with {}, through {shown}. Its claims on them are taken back and \
             kept on record. Other consumers skip them.",
            plain(consumer)
        ),
    };
    let purged = plan.forgotten.iter().filter(|_| consumer.is_none());
    let warnings = purged.map(|mark| {
        format!(
            "{} has purged claims up to {}: what it may have handled becomes its dead letters, in_doubt.",
            plain(&mark.consumer),
            mark.time
        )
    });
    let types = Vec::from_iter(types.iter().map(ToString::to_string));
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    let rate_text = rate.map(|rate| rate.to_string());
    let audit = if consumer.is_some() { "replays run reprocess" } else { "replays run resend" };
    let mut options = vec![
        ("consumer", consumer.clone()),
        ("to", Some(destination.clone())),
        ("since", time(since)),
        ("until", time(until)),
        ("key", key.clone()),
        ("id", id.clone()),
        ("rate", rate_text.clone()),
    ];
    options.extend(types.iter().map(|pattern| ("type", Some(pattern.clone()))));
    let rows = plan.sample.iter().map(|one| {
        let key = one.key.as_deref().unwrap_or("-");
        [&*one.id, &one.event_type, key, &one.time.to_string()].map(plain).to_vec()
    });
    Ok(Prepared {
        title: if consumer.is_some() { "Reprocess messages" } else { "Resend messages" },
        effect,
        warnings: warnings.collect(),
        sample: Sample {
            caption: "The first of them".to_owned(),
            columns: vec!["Event id", "Type", "Key", "Time"],
            rows: rows.collect(),
        },
        command: command(audit, &[], &options),
        audit,
        target: format!("{}: {}", plan.destination, plan.selection),
        fields: hidden(vec![
            ("consumer", consumer.clone()),
            ("destination", Some(destination)),
            ("since", time(since)),
            ("until", time(until)),
            ("type", Some(types.join(" ")).filter(|types| !types.is_empty())),
            ("key", key),
            ("message", id),
            ("rate", rate_text),
        ]),
        needs_reason: true,
        nothing: (plan.selected == 0)
            .then(|| format!("{shown} has settled no message of this selection: nothing is to be replayed.")),
        deed: Deed::Replay(Box::new(plan), consumer, rate),
    })
}

/// The destination that a consumer reads from, as far as this database shows.
async fn read_by<DB: Dialect>(ops: &Ops<DB>, consumer: &str) -> Result<String, Failure> {
    let (readers, own) = (ops.readers().await?, format!("consumer:{consumer}"));
    if readers.iter().any(|reader| reader.name == own) {
        return Ok(own);
    }
    let brokers = readers.into_iter().map(|reader| reader.name).filter(|name| !name.starts_with("consumer:"));
    match &*Vec::from_iter(brokers) {
        [one] => Ok(one.clone()),
        _ => Err(Failure::bad_request("name the destination from which the consumer reads")),
    }
}

pub(super) async fn control<DB: Dialect>(
    ops: &Ops<DB>,
    verb: &str,
    fields: &Fields,
) -> Result<Prepared, Failure> {
    let replay = ops.replay(query::number(&fields.id)?).await?;
    let id = replay.id.to_string();
    let is_paused = matches!(replay.state, twinbox_ops::ReplayState::Paused { .. });
    let ended = replay.state.has_ended().then(|| format!("It is {}.", replay.state.as_str()));
    let (title, effect, audit, deed, nothing) = match verb {
        "pause-replay" => (
            "Pause a replay",
            format!("This will pause the replay {id}. Messages in flight arrive."),
            "replays pause",
            Deed::PauseReplay(replay.id),
            ended.or_else(|| is_paused.then(|| "It is paused.".to_owned())),
        ),
        "resume-replay" => (
            "Resume a replay",
            format!("This will go on with the replay {id}."),
            "replays resume",
            Deed::ResumeReplay(replay.id),
            ended.or_else(|| (!is_paused).then(|| "It is not paused.".to_owned())),
        ),
        _ => (
            "Cancel a replay",
            format!("This will end the replay {id} for good. Messages that were sent stay sent."),
            "replays cancel",
            Deed::CancelReplay(replay.id),
            ended,
        ),
    };
    Ok(Prepared {
        title,
        effect,
        warnings: Vec::new(),
        sample: Sample::default(),
        command: command(audit, &[&id], &[]),
        audit,
        target: id.clone(),
        fields: vec![("id", id)],
        needs_reason: verb == "pause-replay",
        nothing,
        deed,
    })
}
