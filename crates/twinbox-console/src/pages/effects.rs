//! Side effects: a list, or one with its request.
use crate::{
    app::App,
    changes::done,
    failure::Reply,
    frame::{Frame, Visit},
    links::link,
    moment::Moment,
    query::{self, given, number},
};
use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use serde::Deserialize;
use std::sync::Arc;
use twinbox_ops::{
    Dialect,
    effects::{Change, EffectBody, EffectDetails, EffectFilter, EffectId, EffectInfo, Resolution},
    wording::{counted, payload, plain},
};

/// Effects of a page.
const PAGE: usize = 50;
const STATES: [&str; 6] = ["pending", "fired", "confirmed", "unknown", "failed", "compensated"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    id: Option<String>,
    state: Option<String>,
    vendor: Option<String>,
    kind: Option<String>,
    since: Option<String>,
    before: Option<String>,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "effects.html")]
struct Page {
    frame: Frame,
    /// The states, and whether each is chosen.
    states: [(&'static str, bool); 6],
    vendor: String,
    kind: String,
    since: String,
    rows: Vec<Row>,
    next: Option<String>,
    vendors: Vec<(String, String, Option<String>)>,
}

struct Row {
    position: i64,
    link: String,
    kind: String,
    vendor: String,
    key: String,
    state: String,
    is_wrong: bool,
    attempts: u32,
    /// The same in words.
    sent: String,
    error: String,
    created_at: Moment,
}

#[derive(Template)]
#[template(path = "effect.html")]
struct One {
    frame: Frame,
    row: Row,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: String,
    facts: Vec<(&'static str, String)>,
    message_link: String,
    retry_link: Option<String>,
    resolve_links: Option<(String, String)>,
}

pub(crate) async fn page<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(asked): Query<Asked>,
) -> Reply {
    let word = done(asked.done.as_deref());
    if let Some(id) = given(&asked.id)? {
        let details = app.ops.effect(EffectId::Position(number(&Some(id))?)).await?;
        let title = format!("Effect {}", details.effect.position);
        let frame = Frame::new(&app, &visit, "/effects", title).done(word);
        return Ok(Html(one(frame, &details).render()?));
    }
    let filter = EffectFilter {
        state: given(&asked.state)?,
        vendor: given(&asked.vendor)?,
        kind: given(&asked.kind)?,
        since: query::time(&app.ops, &asked.since).await?,
    };
    let before = match given(&asked.before)? {
        Some(before) => Some(number(&Some(before))?),
        None => None,
    };
    let found = app.ops.effects(&filter, before, PAGE).await?;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (state, vendor, kind, since) =
        (text(&asked.state), text(&asked.vendor), text(&asked.kind), text(&asked.since));
    let next = found.next.map(|next| {
        let parts = [("state", &*state), ("vendor", &vendor), ("kind", &kind), ("since", &since)];
        link("/effects", &[&parts[..], &[("before", &*next.to_string())]].concat())
    });
    let vendors = app.ops.vendors().await?;
    let page = Page {
        frame: Frame::new(&app, &visit, "/effects", "Side effects").done(word),
        states: STATES.map(|one| (one, one == state)),
        rows: found.effects.iter().map(row).collect(),
        next,
        vendors: vendors
            .iter()
            .map(|one| {
                let verb = if one.pause_reason.is_some() { "resume" } else { "pause" };
                let change = link(&format!("/changes/{verb}-vendor"), &[("name", &one.vendor)]);
                (plain(&one.vendor), change, one.pause_reason.as_deref().map(plain))
            })
            .collect(),
        vendor,
        kind,
        since,
    };
    Ok(Html(page.render()?))
}

fn row(effect: &EffectInfo) -> Row {
    let error = match (&effect.error_code, &effect.last_error) {
        (Some(code), Some(text)) => format!("{code}: {text}"),
        (Some(text), None) | (None, Some(text)) => text.clone(),
        (None, None) => String::new(),
    };
    Row {
        position: effect.position,
        link: link("/effects", &[("id", &effect.position.to_string())]),
        kind: plain(&effect.kind),
        vendor: plain(&effect.vendor),
        key: plain(effect.key.as_deref().unwrap_or_default()),
        state: plain(&effect.state),
        is_wrong: matches!(&*effect.state, "unknown" | "failed"),
        attempts: effect.attempts,
        sent: counted(u64::from(effect.attempts), "time"),
        error: plain(&error),
        created_at: Moment(effect.created_at),
    }
}

fn one(frame: Frame, details: &EffectDetails) -> One {
    let (effect, id) = (&details.effect, details.effect.position.to_string());
    let text = |text: &Option<String>| text.as_deref().map(plain);
    let time = |time: Option<twinbox_ops::Timestamp>| time.map(|time| time.to_string());
    let facts = [
        ("Idempotency key", text(&details.idempotency_key)),
        ("The vendor's name for it", text(&effect.provider_ref)),
        ("Status of the response", effect.http_code.map(|code| code.to_string())),
        ("First sent", time(details.first_fired_at)),
        ("Last sent", time(effect.fired_at)),
        ("Next attempt", time(effect.next_attempt_at)),
        ("Ended", time(effect.ended_at)),
        ("Compensates the effect", effect.compensates.map(|position| position.to_string())),
        ("Correlation id", text(&details.correlation_id)),
    ];
    let resolve = |outcome| link("/changes/resolve-effect", &[("id", &id), ("outcome", outcome)]);
    let can = |change: Change| change.check(effect).is_ok();
    One {
        frame,
        row: row(effect),
        method: plain(&details.method),
        target: plain(&details.target),
        headers: details.headers.iter().map(|(name, text)| (plain(name), plain(text))).collect(),
        body: match &details.body {
            EffectBody::Plain(bytes) => payload(bytes),
            EffectBody::Encoded { codec, bytes } => format!("({bytes} bytes of {})", plain(codec)),
        },
        facts: facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect(),
        message_link: link("/messages", &[("id", &effect.source_id.to_string())]),
        retry_link: can(Change::Retry).then(|| link("/changes/retry-effect", &[("id", &id)])),
        resolve_links: can(Change::Resolve(Resolution::Applied))
            .then(|| (resolve("applied"), resolve("not-applied"))),
    }
}
