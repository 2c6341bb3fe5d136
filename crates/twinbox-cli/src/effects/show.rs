//! `twinbox effects show`.
use super::row::EffectRow;
use crate::{
    exit::Exit,
    output::{brief, plain},
    session::Session,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use twinbox_core::Timestamp;
use twinbox_ops::{
    effects::{EffectBody, EffectDetails, EffectId, EffectInfo},
    wording::payload,
};
use twinbox_sql::Dialect;

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    effect: EffectRow,
    method: &'a str,
    target: &'a str,
    content_type: &'a str,
    headers: BTreeMap<&'a str, &'a str>,
    /// JSON as it is, else text; null if it is neither, or encoded.
    body: Value,
    /// The bytes of a body that is no text.
    body_base64: Option<String>,
    /// The codec of a body that this tool cannot decode.
    codec: Option<&'a str>,
    correlation_id: Option<&'a str>,
    traceparent: Option<&'a str>,
    idempotency_key: Option<&'a str>,
    provider_key_expires_at: Option<String>,
    first_fired_at: Option<String>,
    owner: Option<String>,
}

pub(super) async fn show<DB: Dialect>(session: &Session<DB>, id: EffectId) -> Result<(), Exit> {
    let details = session.ops.effect(id).await?;
    let (body, body_base64, codec) = match &details.body {
        EffectBody::Encoded { codec, .. } => (Value::Null, None, Some(&**codec)),
        EffectBody::Plain(bytes) => match (serde_json::from_slice(bytes), std::str::from_utf8(bytes)) {
            (Ok(json), _) => (json, None, None),
            (Err(_), Ok(text)) => (json!(text), None, None),
            (Err(_), Err(_)) => (Value::Null, Some(BASE64_STANDARD.encode(bytes)), None),
        },
    };
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let shown = Shown {
        effect: EffectRow::from(&details.effect),
        method: &details.method,
        target: &details.target,
        content_type: &details.content_type,
        headers: details.headers.iter().map(|(name, value)| (&**name, &**value)).collect(),
        body,
        body_base64,
        codec,
        correlation_id: details.correlation_id.as_deref(),
        traceparent: details.traceparent.as_deref(),
        idempotency_key: details.idempotency_key.as_deref(),
        provider_key_expires_at: time(details.provider_key_expires_at),
        first_fired_at: time(details.first_fired_at),
        owner: details.owner.map(|owner| owner.to_string()),
    };
    session.output.one(&shown, || render(&details));
    Ok(())
}

fn render(details: &EffectDetails) -> String {
    let effect = &details.effect;
    let mut text = format!(
        "effect {}: {} for {}, {}\n",
        effect.position,
        plain(&effect.kind),
        plain(&effect.vendor),
        effect.state
    );
    for (name, value) in facts(details) {
        if let Some(value) = value {
            text += &format!("  {name}: {}\n", plain(&value).replace('\n', " "));
        }
    }
    text += &format!("\n{} {}\n", plain(&details.method), plain(&details.target));
    text += &format!("  content-type: {}\n", plain(&details.content_type));
    for (name, value) in &details.headers {
        text += &format!("  {}: {}\n", plain(name), plain(value));
    }
    text += &match &details.body {
        EffectBody::Plain(bytes) => payload(bytes),
        EffectBody::Encoded { codec, bytes } => {
            format!("({bytes} bytes, encoded by the codec {:?})", plain(codec))
        }
    };
    let next = advice(effect);
    if next.is_empty() { text } else { format!("{text}\n\n{next}") }
}

/// Names and values, in the order in which things happen.
fn facts(details: &EffectDetails) -> Vec<(&'static str, Option<String>)> {
    let effect = &details.effect;
    let time = |at: Option<Timestamp>| at.map(|at| brief(&at.to_string()));
    vec![
        ("id", effect.id.map(|id| id.to_string())),
        ("source", Some(effect.source_id.to_string())),
        ("key", effect.key.clone()),
        ("compensates", effect.compensates.map(|original| original.to_string())),
        ("correlation id", details.correlation_id.clone()),
        ("planned", time(Some(effect.created_at))),
        ("first sent", time(details.first_fired_at)),
        ("last sent", time(effect.fired_at)),
        ("sends", Some(format!("{}, of which {} failed", effect.attempts, effect.failures))),
        ("generation", Some(effect.generation.to_string()).filter(|_| effect.generation > 0)),
        ("idempotency key", details.idempotency_key.clone()),
        ("the vendor knows the key until", time(details.provider_key_expires_at)),
        ("next try", time(effect.next_attempt_at)),
        ("ended", time(effect.ended_at)),
        ("the vendor calls it", effect.provider_ref.clone()),
        ("last status", effect.http_code.map(|code| code.to_string())),
        ("code", effect.error_code.clone()),
        ("note", effect.last_error.clone()),
    ]
}

/// The next step for a person.
fn advice(effect: &EffectInfo) -> String {
    let position = effect.position;
    match &*effect.state {
        _ if effect.is_in_doubt() => format!(
            "The vendor may have acted. Look there, then use `twinbox effects resolve {position} applied` or \
             `not-applied`."
        ),
        "failed" => {
            format!("The vendor did nothing. `twinbox effects retry {position}` sends it again.")
        }
        _ => String::new(),
    }
}
