//! A replay in the output.
use crate::{
    exit::Exit,
    output::{Column, Output, counted, plain, table_of},
};
use serde::Serialize;
use twinbox_ops::Ops;
use twinbox_sql::{
    Dialect,
    replay::{Replay, ReplayState},
};

/// The number of refused messages that are shown.
const REFUSED_MAX: u32 = 100;

#[derive(Serialize)]
pub(crate) struct ReplayRow {
    id: i64,
    token: String,
    /// `resend` or `reprocess`.
    kind: &'static str,
    destination: String,
    consumer: Option<String>,
    to: String,
    selection: String,
    state: &'static str,
    /// The state with its reason.
    state_text: String,
    done: u64,
    selected: u64,
    refused: u64,
    rate: Option<u32>,
    made_by: String,
    reason: Option<String>,
    made_at: String,
    ended_at: Option<String>,
}

impl ReplayRow {
    pub(crate) const COLUMNS: [Column; 8] = [
        ("id", "id"),
        ("kind", "kind"),
        ("to", "to"),
        ("state", "state_text"),
        ("done", "done"),
        ("of", "selected"),
        ("refused", "refused"),
        ("by", "made_by"),
    ];
}

impl From<&Replay> for ReplayRow {
    fn from(replay: &Replay) -> Self {
        let to = replay.consumer.as_ref().map_or(replay.destination.clone(), |consumer| {
            format!("{consumer} through {}", replay.destination)
        });
        Self {
            id: replay.id,
            token: replay.token.to_string(),
            kind: if replay.consumer.is_some() { "reprocess" } else { "resend" },
            destination: replay.destination.clone(),
            consumer: replay.consumer.clone(),
            to,
            selection: replay.selection.to_string(),
            state: replay.state.as_str(),
            state_text: state_text(replay),
            done: replay.done,
            selected: replay.selected,
            refused: replay.refused,
            rate: replay.rate,
            made_by: replay.made_by.clone(),
            reason: replay.reason.clone(),
            made_at: replay.made_at.to_string(),
            ended_at: replay.ended_at.map(|at| at.to_string()),
        }
    }
}

/// The state for a person.
pub(crate) fn state_text(replay: &Replay) -> String {
    match &replay.state {
        ReplayState::Paused { reason } => format!("paused ({})", plain(reason)),
        ReplayState::Running if !replay.is_alive => "waiting for a process".to_owned(),
        state => state.as_str().to_owned(),
    }
}

#[derive(Serialize)]
struct RefusedRow {
    id: String,
    event_type: String,
    key: Option<String>,
    error: String,
}

/// A replay with the messages that its destination refused.
#[derive(Serialize)]
struct FullRow {
    #[serde(flatten)]
    replay: ReplayRow,
    refusals: Vec<RefusedRow>,
}

impl FullRow {
    fn render(&self) -> String {
        let replay = &self.replay;
        let mut text = format!(
            "Replay {}, a {} to {}: {}\n{} of {} done, {} refused\nmade by {} at {}",
            replay.id,
            replay.kind,
            plain(&replay.to),
            replay.state_text,
            replay.done,
            counted(replay.selected, "message"),
            replay.refused,
            plain(&replay.made_by),
            replay.made_at
        );
        text += &replay.reason.as_ref().map_or(String::new(), |reason| format!(": {}", plain(reason)));
        text += &format!("\n{}", plain(&replay.selection));
        if !self.refusals.is_empty() {
            let columns = [("id", "id"), ("type", "event_type"), ("key", "key"), ("error", "error")];
            text += &format!("\n\n{}", table_of(&columns, &self.refusals));
        }
        text
    }
}

/// Prints a replay with its refused messages. `summary`: a shorter text for a person.
pub(crate) async fn print_replay<DB: Dialect>(
    ops: &Ops<DB>,
    replay: &Replay,
    summary: Option<String>,
    output: &Output,
) -> Result<(), Exit> {
    let refused = ops.refused_messages(replay.id, REFUSED_MAX).await?;
    let refusals = refused.into_iter().filter(|one| one.state != "waiting").map(|one| RefusedRow {
        id: one.message.id,
        event_type: one.message.event_type,
        key: one.message.key,
        error: one.last_error,
    });
    let row = FullRow { replay: ReplayRow::from(replay), refusals: refusals.collect() };
    output.one(&row, || summary.unwrap_or_else(|| row.render()));
    Ok(())
}
