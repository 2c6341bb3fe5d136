//! Consumers: all of them, or one with its partitions and parked deliveries.
use crate::{
    app::App,
    changes::done,
    failure::Reply,
    filters,
    frame::{Frame, Visit},
    links::link,
    moment::Moment,
    query::given,
};
use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use twinbox_ops::{
    Dialect, ParkedDelivery, PartitionCheckpoint,
    wording::{bounded_number, counted, duration, plain},
};

/// Parked deliveries of the page.
const PARKED_MAX: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    name: Option<String>,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "consumers.html")]
struct Page {
    frame: Frame,
    consumers: Vec<Row>,
    one: Option<One>,
}

struct Row {
    name: String,
    link: String,
    seen: String,
    is_silent: bool,
    pause_reason: Option<String>,
    parked: String,
    dead_letters: String,
}

struct One {
    name: String,
    is_known: bool,
    seen: String,
    pause_reason: Option<String>,
    parked: String,
    oldest_parked: String,
    dead_letters: String,
    oldest_dead_letter: String,
    last_claim: String,
    behind: Option<String>,
    partitions: Vec<PartitionCheckpoint>,
    deliveries: Vec<DeliveryRow>,
    dead_letters_link: String,
    pause_link: String,
    resume_link: String,
    retry_link: String,
}

struct DeliveryRow {
    event_id: String,
    link: String,
    event_type: String,
    key: String,
    key_link: String,
    parked_at: Moment,
    next_attempt_at: Moment,
    error: String,
}

pub(crate) async fn page<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Asked { name, done: word }): Query<Asked>,
) -> Reply {
    let name = given(&name)?;
    let title =
        name.as_deref().map_or_else(|| "Consumers".to_owned(), |name| format!("Consumer {}", plain(name)));
    let frame = Frame::new(&app, &visit, "/consumers", title).done(done(word.as_deref()));
    let Some(name) = name else {
        let consumers = app.ops.consumers().await?;
        let row = |one: &twinbox_ops::ConsumerInfo| Row {
            name: plain(&one.consumer),
            link: link("/consumers", &[("name", &one.consumer)]),
            seen: format!("{} ago", duration(one.silent)),
            is_silent: one.silent > app.bounds.max_silence,
            pause_reason: one.pause_reason.as_deref().map(plain),
            parked: bounded_number(one.parked_deliveries),
            dead_letters: bounded_number(one.dead_letters),
        };
        return Ok(Html(Page { frame, consumers: consumers.iter().map(row).collect(), one: None }.render()?));
    };
    let backlog = app.ops.consumer_backlog(&name).await?;
    let own = format!("consumer:{name}");
    let readers = app.ops.readers().await?;
    let behind =
        readers.iter().find(|reader| reader.name == own).map(|reader| bounded_number(reader.backlog));
    let ago = |time: Option<Duration>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{} ago", duration(time)))
    };
    let deliveries = app.ops.parked_deliveries(&name, PARKED_MAX).await?;
    let one = One {
        is_known: backlog.silent.is_some(),
        seen: ago(backlog.silent),
        pause_reason: backlog.pause_reason.as_deref().map(plain),
        parked: bounded_number(backlog.parked),
        oldest_parked: ago(backlog.oldest_parked),
        dead_letters: bounded_number(backlog.dead_letters),
        oldest_dead_letter: ago(backlog.oldest_dead_letter),
        last_claim: ago(backlog.last_claim),
        behind,
        partitions: app.ops.partition_checkpoints(&name).await?,
        deliveries: deliveries.iter().map(delivery_row).collect(),
        dead_letters_link: link("/dead-letters", &[("consumer", &name)]),
        pause_link: link("/changes/pause-consumer", &[("name", &name)]),
        resume_link: link("/changes/resume-consumer", &[("name", &name)]),
        retry_link: link("/changes/retry-parked", &[("consumer", &name)]),
        name: plain(&name),
    };
    Ok(Html(Page { frame, consumers: Vec::new(), one: Some(one) }.render()?))
}

fn delivery_row(delivery: &ParkedDelivery) -> DeliveryRow {
    let key = delivery.key.as_deref().unwrap_or_default();
    DeliveryRow {
        event_id: plain(&delivery.event_id),
        link: link("/messages", &[("id", &delivery.event_id)]),
        event_type: plain(&delivery.event_type),
        key: plain(key),
        key_link: link("/keys", &[("key", key)]),
        parked_at: Moment(delivery.parked_at),
        next_attempt_at: Moment(delivery.next_attempt_at),
        error: match &delivery.failures {
            Some((attempts, error)) => {
                format!("{}: {}", counted(u64::from(*attempts), "failed attempt"), plain(error))
            }
            None => "it waits behind an earlier one".to_owned(),
        },
    }
}
