//! One message: its path as a time line.
use crate::{
    app::App,
    changes::{Fields, done},
    failure::Reply,
    frame::{Frame, Visit},
    links::link,
    moment::Moment,
    query::given,
    view::{DeadLetterRow, MessageView},
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
    effects::EffectInfo,
    trail::{MessageState, MessageTrail},
    wording::{counted, plain},
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    #[serde(flatten)]
    fields: Fields,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "messages.html")]
struct Page {
    frame: Frame,
    id: String,
    found: Option<Found>,
}

struct Found {
    steps: Vec<Step>,
    message: Option<MessageView>,
    key: Option<(String, String)>,
    dead_letters: Vec<DeadLetterRow>,
    copies: usize,
}

/// A step of the time line.
struct Step {
    what: &'static str,
    whom: String,
    text: String,
    at: Option<Moment>,
    is_wrong: bool,
    /// A change that fits, and its address.
    change: Option<(&'static str, String)>,
}

pub(crate) async fn page<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Asked { fields, done: word }): Query<Asked>,
) -> Reply {
    let id = given(&fields.id)?.unwrap_or_default();
    let found = match id.is_empty() {
        true => None,
        false => {
            let trail = app.ops.trail(&id).await?;
            let mut found = follow(&trail, visit.may_change(&app.gate));
            found.message = trail.log.last().map(|entry| MessageView::of(&app.ops, &entry.message));
            if let Some(source) = trail.log.first().map(|entry| entry.message.message_id().as_uuid()) {
                for effect in app.ops.effects_of(source).await? {
                    found.steps.push(effect_step(&effect));
                }
            }
            Some(found)
        }
    };
    let title = if id.is_empty() { "Messages".to_owned() } else { format!("Message {}", plain(&id)) };
    let frame = Frame::new(&app, &visit, "/messages", title).done(done(word.as_deref()));
    Ok(Html(Page { frame, id, found }.render()?))
}

/// The steps of a message: published, settled or parked, delivered, claimed.
fn follow(trail: &MessageTrail, may_change: bool) -> Found {
    let mut steps = Vec::new();
    for entry in &trail.log {
        steps.push(Step {
            what: "published",
            whom: plain(&entry.message.source),
            text: format!("position {} of the log", entry.position),
            at: Some(Moment(entry.message.time)),
            is_wrong: false,
            change: None,
        });
        for (reader, state) in &entry.readers {
            let (what, text, is_wrong, change) = match state {
                MessageState::Pending => ("waits", "it is not settled yet".to_owned(), false, None),
                MessageState::Settled => {
                    ("settled", "it was sent, or its type is not for this reader".to_owned(), false, None)
                }
                MessageState::Parked { state, attempts, error } => {
                    let message = ("message", &*entry.message.id);
                    let skip = link("/changes/skip-message", &[("destination", reader), message]);
                    let tried = counted(u64::from(*attempts), "attempt");
                    let text = format!("{}, after {tried}: {}", plain(state), plain(error));
                    let change = (may_change && state != "dead").then_some(("Skip it", skip));
                    ("parked", text, true, change)
                }
                _ => ("unknown", "a newer version of Twinbox knows this state".to_owned(), false, None),
            };
            steps.push(Step { what, whom: plain(reader), text, at: None, is_wrong, change });
        }
    }
    for consumer in &trail.consumers {
        let whom = plain(&consumer.consumer);
        if let Some((failures, error)) = &consumer.failures {
            let failed = counted(u64::from(*failures), "failed attempt");
            let text = format!("{failed}, the last with: {}", plain(error));
            let whom = whom.clone();
            steps.push(Step { what: "delivered", whom, text, at: None, is_wrong: true, change: None });
        }
        if let Some((state, at)) = &consumer.claim {
            let again = match consumer.superseded {
                0 => String::new(),
                times => format!(", and a replay took it back {times} times"),
            };
            steps.push(Step {
                what: "claimed",
                whom,
                text: format!("as {}{again}", plain(state)),
                at: Some(Moment(*at)),
                is_wrong: state != "processed",
                change: None,
            });
        }
    }
    let key = trail.log.first().and_then(|entry| entry.message.key.clone());
    Found {
        steps,
        message: None,
        key: key.map(|key| (plain(&key), link("/keys", &[("key", &key)]))),
        dead_letters: trail.dead_letters.iter().map(DeadLetterRow::from).collect(),
        copies: trail.log.len(),
    }
}

fn effect_step(effect: &EffectInfo) -> Step {
    Step {
        what: "effect",
        whom: plain(&effect.vendor),
        text: format!("{} is {}", plain(&effect.kind), plain(&effect.state)),
        at: Some(Moment(effect.ended_at.or(effect.fired_at).unwrap_or(effect.created_at))),
        is_wrong: matches!(&*effect.state, "unknown" | "failed"),
        change: Some(("Show it", link("/effects", &[("id", &effect.position.to_string())]))),
    }
}
