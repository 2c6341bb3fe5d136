//! Acts on many dead letters: all of them, or one with its progress.
use crate::{
    app::App,
    failure::{Failure, Reply},
    frame::{Frame, Visit},
    links::link,
    moment::Moment,
    query::{given, number},
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
    dead_letters::{BulkAction, BulkActionState},
    wording::{bounded_number, plain},
};

/// Actions of the page.
const SHOWN_MAX: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    id: Option<String>,
}

#[derive(Template)]
#[template(path = "bulk_actions.html")]
struct Page {
    frame: Frame,
    actions: Vec<Row>,
    one: Option<(String, String)>,
}

#[derive(Template)]
#[template(path = "bulk_action_live.html")]
struct Live {
    may_change: bool,
    row: Row,
    cancel_link: String,
}

struct Row {
    id: i64,
    link: String,
    action: &'static str,
    owner: String,
    conditions: String,
    state: &'static str,
    is_waiting: bool,
    has_ended: bool,
    planned: String,
    looked_at: u64,
    changed: u64,
    made_by: String,
    reason: String,
    error: String,
    made_at: Moment,
    ended_at: Option<Moment>,
}

pub(crate) async fn page<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Asked { id }): Query<Asked>,
) -> Reply {
    if let Some(id) = given(&id)? {
        let id = number(&Some(id))?;
        let live = read(&app, &visit, id).await?;
        let frame = Frame::new(&app, &visit, "/dead-letters", format!("Bulk action {id}"));
        let one = Some((link("/bulk-actions/live", &[("id", &id.to_string())]), live));
        return Ok(Html(Page { frame, actions: Vec::new(), one }.render()?));
    }
    let actions = app.ops.bulk_actions(SHOWN_MAX).await?;
    let frame = Frame::new(&app, &visit, "/dead-letters", "Bulk actions");
    Ok(Html(Page { frame, actions: actions.iter().map(row).collect(), one: None }.render()?))
}

pub(crate) async fn live<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Asked { id }): Query<Asked>,
) -> Reply {
    Ok(Html(read(&app, &visit, number(&id)?).await?))
}

async fn read<DB: Dialect>(app: &Arc<App<DB>>, visit: &Visit, id: i64) -> Result<String, Failure> {
    let action = app.ops.bulk_action(id).await?;
    let id = id.to_string();
    let live = Live {
        may_change: visit.may_change(&app.gate),
        row: row(&action),
        cancel_link: link("/changes/cancel-bulk", &[("id", &id)]),
    };
    Ok(live.render()?)
}

fn row(action: &BulkAction) -> Row {
    let filter = &action.filter;
    let mut conditions = Vec::new();
    let texts = [("group", &filter.fingerprint), ("key", &filter.key), ("message", &filter.message)];
    conditions
        .extend(texts.iter().filter_map(|(name, text)| Some(format!("{name} {}", plain(text.as_ref()?)))));
    conditions.extend(filter.types.iter().map(|pattern| format!("type {pattern}")));
    conditions.extend(filter.ids.iter().map(|id| format!("id {}", plain(&id.to_string()))));
    conditions.extend(filter.since.map(|time| format!("since {time}")));
    conditions.extend(filter.until.map(|time| format!("until {time}")));
    Row {
        id: action.id,
        link: link("/bulk-actions", &[("id", &action.id.to_string())]),
        action: action.action.as_str(),
        owner: filter.owner().map(|owner| plain(&owner.to_string())).unwrap_or_default(),
        conditions: conditions.join(", "),
        state: action.state.as_str(),
        is_waiting: action.state == BulkActionState::Waiting,
        has_ended: action.state.has_ended(),
        planned: bounded_number(action.planned),
        looked_at: action.looked_at,
        changed: action.changed,
        made_by: plain(&action.made_by),
        reason: action.reason.as_deref().map(plain).unwrap_or_default(),
        error: action.error.as_deref().map(plain).unwrap_or_default(),
        made_at: Moment(action.made_at),
        ended_at: action.ended_at.map(Moment),
    }
}
