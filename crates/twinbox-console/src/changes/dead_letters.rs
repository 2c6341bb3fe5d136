//! Redriving and discarding all dead letters that match.
use super::{
    fields::{Fields, command, hidden},
    prepared::{Deed, Prepared, Sample},
};
use crate::{failure::Failure, query};
use twinbox_ops::{
    Dialect, Ops,
    dead_letters::{DEAD_LETTERS_SCANNED_MAX, DeadLetterAction, DeadLetterFilter, DeadLetterId},
    wording::{counted, number as number_of, plain},
};

/// Reads the filter of a page.
pub(crate) async fn filter<DB: Dialect>(ops: &Ops<DB>, fields: &Fields) -> Result<DeadLetterFilter, Failure> {
    let ids = query::given(&fields.id)?.map(|id| id.parse::<DeadLetterId>());
    Ok(DeadLetterFilter {
        consumer: query::given(&fields.consumer)?,
        destination: query::given(&fields.destination)?,
        ids: ids.transpose().map_err(Failure::bad_request)?.into_iter().collect(),
        fingerprint: query::given(&fields.group)?,
        types: query::types(&fields.types)?,
        key: query::given(&fields.key)?,
        message: query::given(&fields.message)?,
        since: query::time(ops, &fields.since).await?,
        until: query::time(ops, &fields.until).await?,
    })
}

pub(super) async fn bulk<DB: Dialect>(
    ops: &Ops<DB>,
    verb: &str,
    fields: &Fields,
) -> Result<Prepared, Failure> {
    let action = match verb {
        "redrive" => DeadLetterAction::Redrive,
        _ => DeadLetterAction::Discard,
    };
    let (rate, spacing) = query::spacing(&fields.rate)?;
    let mut filter = filter(ops, fields).await?;
    // Dead letters after the preview were not shown.
    filter.until = Some(filter.until.unwrap_or(ops.now().await?));
    let plan = ops.plan_bulk_action(action, &filter).await?;
    let owner = filter.owner().map(|owner| plain(&owner.to_string())).unwrap_or_default();
    let number = match (plan.matching, plan.has_more) {
        (0, true) => "the matching dead letters".to_owned(),
        (matching, true) => format!("{} or more", counted(matching, "dead letter")),
        (matching, false) => counted(matching, "dead letter"),
    };
    let (audit, title, effect, mut warnings) = match action {
        DeadLetterAction::Redrive => (
            "dead-letters redrive",
            "Redrive dead letters",
            format!("This will hand {number} of the {owner} to it again."),
            vec!["Redriven messages may arrive after later messages of their keys.".to_owned()],
        ),
        _ => (
            "dead-letters discard",
            "Discard dead letters",
            format!("This will delete {number} of the {owner} for good."),
            vec!["Their messages never run. Nothing brings them back.".to_owned()],
        ),
    };
    if plan.has_more {
        warnings.push(match (plan.matching, plan.redriven) {
            (0, 0) => format!(
                "None of the newest {} matches, and older ones were not counted. The action looks at every \
                 dead letter up to now.",
                number_of(DEAD_LETTERS_SCANNED_MAX.into())
            ),
            _ => "More may match than were counted. The action looks at every dead letter up to now."
                .to_owned(),
        });
    }
    if plan.redriven > 0 && !plan.is_empty() {
        warnings
            .push(format!("Redriven already, and left alone: {}.", counted(plan.redriven, "dead letter")));
    }
    let nothing = plan.is_empty().then(|| match plan.redriven {
        0 => "No dead letter matches.".to_owned(),
        _ => "All that match are redriven already.".to_owned(),
    });
    let time = |time: Option<twinbox_ops::Timestamp>| time.map(|time| time.to_string());
    let types = Vec::from_iter(filter.types.iter().map(ToString::to_string));
    let ids = Vec::from_iter(filter.ids.iter().map(ToString::to_string));
    let rate = rate.map(|rate| rate.to_string());
    let mut options = vec![
        ("consumer", filter.consumer.clone()),
        ("destination", filter.destination.clone()),
        ("group", filter.fingerprint.clone()),
        ("key", filter.key.clone()),
        ("message", filter.message.clone()),
        ("since", time(filter.since)),
        ("until", time(filter.until)),
        ("rate", rate.clone()),
    ];
    options.extend(types.iter().map(|pattern| ("type", Some(pattern.clone()))));
    let target = Vec::from_iter(
        options
            .iter()
            .filter_map(|(name, value)| Some(format!("{name} {}", value.as_deref()?)))
            .chain(ids.clone()),
    );
    let rows = plan.sample.iter().map(|one| {
        let key = one.key.as_deref().unwrap_or("-");
        [&one.id.to_string(), &one.event_type, key, &one.error].map(|text: &str| plain(text)).to_vec()
    });
    Ok(Prepared {
        title,
        effect,
        warnings,
        sample: Sample {
            caption: "The newest of them".to_owned(),
            columns: vec!["Id", "Type", "Key", "Error"],
            rows: rows.collect(),
        },
        command: command(audit, &Vec::from_iter(ids.iter().map(String::as_str)), &options),
        audit,
        target: target.join(", "),
        fields: hidden(vec![
            ("consumer", filter.consumer.clone()),
            ("destination", filter.destination.clone()),
            ("group", filter.fingerprint.clone()),
            ("type", Some(types.join(" ")).filter(|types| !types.is_empty())),
            ("key", filter.key.clone()),
            ("message", filter.message.clone()),
            ("id", ids.into_iter().next()),
            ("since", time(filter.since)),
            ("until", time(filter.until)),
            ("rate", rate),
        ]),
        needs_reason: true,
        nothing,
        deed: Deed::Bulk(Box::new(plan), spacing),
    })
}

pub(super) async fn cancel<DB: Dialect>(ops: &Ops<DB>, fields: &Fields) -> Result<Prepared, Failure> {
    let action = ops.bulk_action(query::number(&fields.id)?).await?;
    let id = action.id.to_string();
    Ok(Prepared {
        title: "Cancel a bulk action",
        effect: format!("This will stop the bulk action {id}. What it has changed stays changed."),
        warnings: Vec::new(),
        sample: Sample::default(),
        command: String::new(),
        audit: "bulk-actions cancel",
        target: id.clone(),
        fields: vec![("id", id)],
        needs_reason: false,
        nothing: action.state.has_ended().then(|| format!("It is {}.", action.state.as_str())),
        deed: Deed::CancelBulk(action.id),
    })
}
