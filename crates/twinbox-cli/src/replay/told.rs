//! How replays are told.
use crate::{
    exit::Exit,
    output::{Output, counted, plain, table_of},
    progress::standing,
};
use serde::Serialize;
use twinbox_sql::{Dialect, Store, replay::Replay};

pub(super) const COLUMNS: [(&str, &str); 8] = [
    ("id", "id"),
    ("kind", "kind"),
    ("to", "to"),
    ("state", "standing"),
    ("done", "done"),
    ("of", "selected"),
    ("refused", "refused"),
    ("by", "made_by"),
];

#[derive(Serialize)]
pub(super) struct Told {
    id: i64,
    token: String,
    kind: &'static str,
    destination: String,
    consumer: Option<String>,
    to: String,
    selection: String,
    state: &'static str,
    standing: String,
    done: u64,
    selected: u64,
    refused: u64,
    rate: Option<u32>,
    made_by: String,
    reason: Option<String>,
    made_at: String,
    ended_at: Option<String>,
}

impl From<&Replay> for Told {
    fn from(replay: &Replay) -> Self {
        let to = replay
            .consumer
            .as_ref()
            .map_or(replay.destination.clone(), |consumer| format!("{consumer} by {}", replay.destination));
        Self {
            id: replay.id,
            token: replay.token.to_string(),
            kind: if replay.consumer.is_some() { "reprocess" } else { "resend" },
            destination: replay.destination.clone(),
            consumer: replay.consumer.clone(),
            to,
            selection: replay.selection.to_string(),
            state: replay.state.as_str(),
            standing: standing(replay),
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

#[derive(Serialize)]
struct Refused {
    id: String,
    event_type: String,
    key: Option<String>,
    error: String,
}

#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    replay: Told,
    refusals: Vec<Refused>,
}

pub(super) async fn one<DB: Dialect>(store: &Store<DB>, id: i64, output: &Output) -> Result<(), Exit> {
    let replay = Told::from(&store.replay(id).await?);
    let refusals = store.replay_refused(id, 100).await?.into_iter().filter(|one| one.state != "waiting");
    let refusals = refusals.map(|one| Refused {
        id: one.message.id,
        event_type: one.message.event_type,
        key: one.message.key,
        error: one.last_error,
    });
    let whole = Whole { replay, refusals: refusals.collect() };
    output.one(&whole, || {
        let told = &whole.replay;
        let mut text = format!(
            "Replay {}, a {} to {}: {}\n{} of {} done, {} refused\nmade by {} at {}",
            told.id,
            told.kind,
            plain(&told.to),
            told.standing,
            told.done,
            counted(told.selected, "message"),
            told.refused,
            plain(&told.made_by),
            told.made_at
        );
        text += &told.reason.as_ref().map_or(String::new(), |reason| format!(": {}", plain(reason)));
        text += &format!("\n{}", plain(&told.selection));
        if !whole.refusals.is_empty() {
            let columns = [("id", "id"), ("type", "event_type"), ("key", "key"), ("error", "error")];
            text += &format!("\n\n{}", table_of(&columns, &whole.refusals));
        }
        text
    });
    Ok(())
}
