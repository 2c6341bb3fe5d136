//! Decisions about side effects, and pausing vendors.
use super::{
    fields::{Fields, command, required},
    prepared::{Deed, Prepared, Sample},
};
use crate::{failure::Failure, query};
use twinbox_ops::{
    Dialect, Ops,
    effects::{Change, EffectId, Resolution},
    wording::plain,
};

pub(super) fn vendor(verb: &str, fields: &Fields) -> Result<Prepared, Failure> {
    let name = required(&fields.name, "name")?;
    let shown = plain(&name);
    let (title, effect, audit, deed, needs_reason) = match verb {
        "pause-vendor" => (
            "Pause a vendor",
            format!("This will send no side effect to {shown} until it is resumed. Sends under way finish."),
            "vendors pause",
            Deed::PauseVendor(name.clone()),
            true,
        ),
        _ => (
            "Resume a vendor",
            format!("This will send side effects to {shown} again."),
            "vendors resume",
            Deed::ResumeVendor(name.clone()),
            false,
        ),
    };
    Ok(Prepared {
        title,
        effect,
        warnings: Vec::new(),
        sample: Sample::default(),
        command: command(audit, &[&name], &[]),
        audit,
        target: name.clone(),
        fields: vec![("name", name)],
        needs_reason,
        nothing: None,
        deed,
    })
}

pub(super) async fn decide<DB: Dialect>(
    ops: &Ops<DB>,
    verb: &str,
    fields: &Fields,
) -> Result<Prepared, Failure> {
    let position = query::number(&fields.id)?;
    let id = EffectId::Position(position);
    let effect = ops.effect(id).await?.effect;
    let outcome = query::given(&fields.outcome)?;
    let (change, sentence) = match (verb, outcome.as_deref()) {
        ("retry-effect", _) => (
            Change::Retry,
            format!(
                "This will send the effect {position} to {} again, under a new key.",
                plain(&effect.vendor)
            ),
        ),
        (_, Some("applied")) => (
            Change::Resolve(Resolution::Applied),
            format!("This will confirm the effect {position}: {} has acted.", plain(&effect.vendor)),
        ),
        (_, Some("not-applied")) => (
            Change::Resolve(Resolution::NotApplied),
            format!(
                "This will send the effect {position} to {} again, under a new key.",
                plain(&effect.vendor)
            ),
        ),
        _ => return Err(Failure::bad_request("say whether the vendor acted: `applied` or `not-applied`")),
    };
    change.check(&effect)?;
    let mut warnings = Vec::new();
    if change == Change::Resolve(Resolution::NotApplied) {
        let what = "Say this only if the vendor did nothing, and no earlier send can act any more.";
        warnings.push(what.to_owned());
    }
    let number = position.to_string();
    let (audit, words) = match change {
        Change::Retry => ("effects retry", vec![&*number]),
        Change::Resolve(_) => ("effects resolve", vec![&*number, outcome.as_deref().unwrap_or_default()]),
    };
    let mut form = vec![("id", number.clone())];
    form.extend(outcome.clone().map(|outcome| ("outcome", outcome)));
    Ok(Prepared {
        title: if change == Change::Retry { "Retry an effect" } else { "Resolve an effect" },
        effect: sentence,
        warnings,
        sample: Sample {
            caption: "The effect".to_owned(),
            columns: vec!["Kind", "Vendor", "State", "Error"],
            rows: vec![
                [&*effect.kind, &effect.vendor, &effect.state, effect.error_code.as_deref().unwrap_or("-")]
                    .map(plain)
                    .to_vec(),
            ],
        },
        command: command(audit, &words, &[]),
        audit,
        target: words.join(" "),
        fields: form,
        needs_reason: true,
        nothing: None,
        deed: Deed::Effect(id, change),
    })
}
