//! Replays: a form for a new one, all of them, or one with its progress.
use crate::{
    app::App,
    changes::done,
    failure::{Failure, Reply},
    filters,
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
use twinbox_ops::{Dialect, Replay, ReplayState, wording::plain};

/// Replays of the page.
const SHOWN_MAX: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    id: Option<String>,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "replays.html")]
struct Page {
    frame: Frame,
    destinations: Vec<String>,
    consumers: Vec<String>,
    replays: Vec<Row>,
    one: Option<(String, String)>,
    is_full: bool,
}

#[derive(Template)]
#[template(path = "replay_live.html")]
struct Live {
    may_change: bool,
    row: Row,
    reason: String,
    made_by: String,
    made_at: Moment,
    ended_at: Option<Moment>,
    selection: String,
    pause_link: String,
    resume_link: String,
    cancel_link: String,
}

struct Row {
    id: i64,
    link: String,
    kind: &'static str,
    to: String,
    state: String,
    is_paused: bool,
    has_ended: bool,
    done: u64,
    selected: u64,
    refused: u64,
}

pub(crate) async fn page<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Asked { id, done: word }): Query<Asked>,
) -> Reply {
    let (id, word) = (given(&id)?, done(word.as_deref()));
    if let Some(id) = id {
        let id = number(&Some(id))?;
        let live = read(&app, &visit, id).await?;
        let frame = Frame::new(&app, &visit, "/replays", format!("Replay {id}")).done(word);
        let one = Some((link("/replays/live", &[("id", &id.to_string())]), live));
        let page = Page {
            frame,
            destinations: Vec::new(),
            consumers: Vec::new(),
            replays: Vec::new(),
            is_full: false,
            one,
        };
        return Ok(Html(page.render()?));
    }
    let (replays, readers) = (app.ops.replays(SHOWN_MAX).await?, app.ops.readers().await?);
    let page = Page {
        frame: Frame::new(&app, &visit, "/replays", "Replays").done(word),
        destinations: readers.into_iter().map(|reader| reader.name).collect(),
        consumers: app.ops.consumer_names().await?,
        replays: replays.iter().map(row).collect(),
        is_full: replays.len() >= SHOWN_MAX as usize,
        one: None,
    };
    Ok(Html(page.render()?))
}

pub(crate) async fn live<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Asked { id, .. }): Query<Asked>,
) -> Reply {
    Ok(Html(read(&app, &visit, number(&id)?).await?))
}

async fn read<DB: Dialect>(app: &Arc<App<DB>>, visit: &Visit, id: i64) -> Result<String, Failure> {
    let replay = app.ops.replay(id).await?;
    let id = id.to_string();
    let with = |path: &str| link(path, &[("id", &id)]);
    let live = Live {
        may_change: visit.may_change(&app.gate),
        row: row(&replay),
        reason: replay.reason.as_deref().map(plain).unwrap_or_default(),
        made_by: plain(&replay.made_by),
        made_at: Moment(replay.made_at),
        ended_at: replay.ended_at.map(Moment),
        selection: plain(&replay.selection.to_string()),
        pause_link: with("/changes/pause-replay"),
        resume_link: with("/changes/resume-replay"),
        cancel_link: with("/changes/cancel-replay"),
    };
    Ok(live.render()?)
}

fn row(replay: &Replay) -> Row {
    let state = match &replay.state {
        ReplayState::Paused { reason } => format!("paused: {}", plain(reason)),
        ReplayState::Running if !replay.is_alive => "waiting: no process works on it".to_owned(),
        other => other.as_str().to_owned(),
    };
    Row {
        id: replay.id,
        link: link("/replays", &[("id", &replay.id.to_string())]),
        kind: if replay.consumer.is_some() { "reprocess" } else { "resend" },
        to: plain(replay.consumer.as_deref().unwrap_or(&replay.destination)),
        state,
        is_paused: matches!(replay.state, ReplayState::Paused { .. }),
        has_ended: replay.state.has_ended(),
        done: replay.done,
        selected: replay.selected,
        refused: replay.refused,
    }
}
