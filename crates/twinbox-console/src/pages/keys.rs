//! The messages of a key in order, and idempotency keys that are unfinished.
use crate::{
    app::App,
    changes::{Fields, done},
    failure::{Failure, Reply},
    filters,
    frame::{Frame, Visit},
    links::link,
    moment::Moment,
    query::given,
    view::why_parked,
};
use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use serde::Deserialize;
use std::sync::Arc;
use twinbox_ops::{Dialect, KEY_SCANNED_MAX, UnfinishedOperation, wording::plain};

/// Messages of a page.
const PAGE: usize = 50;
/// Parked messages of the key for each reader, and parked deliveries for each consumer.
const PARKED_MAX: u32 = 100;
/// Unfinished operations of the page.
const UNFINISHED_SHOWN_MAX: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    #[serde(flatten)]
    fields: Fields,
    before: Option<String>,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "keys.html")]
struct Page {
    frame: Frame,
    key: String,
    found: Option<Found>,
    unfinished: Vec<UnfinishedOperation>,
    scanned_max: String,
}

struct Found {
    messages: Vec<Row>,
    next: Option<String>,
    looked_back_to: Option<Moment>,
    is_full: bool,
    parked: Vec<ParkedRow>,
    deliveries: Vec<DeliveryRow>,
}

struct Row {
    position: u64,
    id: String,
    link: String,
    event_type: String,
    time: Moment,
    /// For whom it is parked, and behind what it waits.
    notes: Vec<String>,
}

struct ParkedRow {
    reader: String,
    position: i64,
    state: String,
    unblock_link: Option<String>,
}

struct DeliveryRow {
    id: String,
    link: String,
    consumer: String,
    error: String,
    parked_at: Moment,
    retry_link: String,
}

pub(crate) async fn page<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Asked { fields, before, done: word }): Query<Asked>,
) -> Reply {
    let key = fields.key.clone().unwrap_or_default();
    let (found, unfinished) = match key.is_empty() {
        true => (None, app.ops.unfinished_operations(UNFINISHED_SHOWN_MAX).await?),
        false => (Some(find(&app, &key, given(&before)?).await?), Vec::new()),
    };
    let title = if key.is_empty() { "Keys".to_owned() } else { format!("Key {}", plain(&key)) };
    let frame = Frame::new(&app, &visit, "/keys", title).done(done(word.as_deref()));
    let scanned_max = twinbox_ops::wording::number(u64::from(KEY_SCANNED_MAX));
    Ok(Html(Page { frame, key, found, unfinished, scanned_max }.render()?))
}

async fn find<DB: Dialect>(app: &Arc<App<DB>>, key: &str, before: Option<String>) -> Result<Found, Failure> {
    let before = before.map(|text| {
        text.parse::<i64>().map_err(|_| Failure::bad_request(format!("{text:?} is no position")))
    });
    let page = app.ops.key_page(key, before.transpose()?, PAGE).await?;
    let parked = app.ops.parked_of_key(key, PARKED_MAX).await?;
    let deliveries = app.ops.parked_deliveries_of_key(key, PARKED_MAX).await?;
    let notes = |position: u64| {
        let position = i64::try_from(position).unwrap_or(i64::MAX);
        let of_readers = parked.iter().filter(move |(.., number, _)| *number == position);
        let notes = of_readers.map(|(reader, _, state)| match &**state {
            "waiting" => {
                let first = parked.iter().filter(|(name, ..)| name == reader).map(|one| one.1).min();
                match first.filter(|first| *first < position) {
                    Some(first) => format!("parked for {}, behind position {first}", plain(reader)),
                    None => format!("parked for {}", plain(reader)),
                }
            }
            other => format!("{} for {}: later ones wait", plain(other), plain(reader)),
        });
        notes.collect::<Vec<_>>()
    };
    let messages = page.messages.iter().map(|message| {
        let position = message.sequence.unwrap_or_default();
        Row {
            position,
            id: plain(&message.id),
            link: link("/messages", &[("id", &message.id)]),
            event_type: plain(&message.event_type),
            time: Moment(message.time),
            notes: notes(position),
        }
    });
    let with = |next: i64| link("/keys", &[("key", key), ("before", &next.to_string())]);
    Ok(Found {
        messages: messages.collect(),
        next: page.next.map(with),
        looked_back_to: page.looked_back_to.map(Moment),
        is_full: page.messages.len() >= PAGE,
        parked: parked
            .iter()
            .map(|(reader, position, state)| ParkedRow {
                reader: plain(reader),
                position: *position,
                state: plain(state),
                unblock_link: (state != "waiting")
                    .then(|| link("/changes/unblock-key", &[("destination", reader), ("key", key)])),
            })
            .collect(),
        deliveries: deliveries
            .iter()
            .map(|(consumer, delivery)| DeliveryRow {
                id: plain(&delivery.event_id),
                link: link("/messages", &[("id", &delivery.event_id)]),
                consumer: plain(consumer),
                error: why_parked(delivery),
                parked_at: Moment(delivery.parked_at),
                retry_link: link("/changes/retry-parked", &[("consumer", consumer), ("key", key)]),
            })
            .collect(),
    })
}
