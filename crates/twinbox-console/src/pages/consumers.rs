//! Consumers: all of them, or one with its partitions and parked deliveries.
use crate::{
    app::App,
    broker::{self, Lag},
    changes::done,
    failure::{Failure, Reply},
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
use std::{sync::Arc, time::Duration};
use twinbox_ops::{
    ConsumerInfo, Dialect, ParkedDelivery, PartitionCheckpoint,
    wording::{bounded_number, duration, number, plain},
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
    is_known: bool,
    seen: String,
    pause_reason: Option<String>,
    parked: String,
    oldest_parked: String,
    dead_letters: String,
    oldest_dead_letter: String,
    last_claim: String,
    behind_in_log: Option<String>,
    behind_at_broker: Option<Behind>,
    broker_error: Option<String>,
    has_broker: bool,
    partitions: Vec<PartitionRow>,
    deliveries: Vec<DeliveryRow>,
    dead_letters_link: String,
    pause_link: String,
    resume_link: String,
    retry_link: String,
}

/// How far a consumer is behind at a broker.
struct Behind {
    messages: String,
    oldest_at: Option<Moment>,
    restarts_because: Option<&'static str>,
}

struct PartitionRow {
    partition: u32,
    owner: Option<String>,
    settled: u64,
    log: String,
    behind: Option<Behind>,
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
    let (consumers, one) = match name {
        None => (rows(&app).await?, None),
        Some(name) => (Vec::new(), Some(one(&app, &name).await?)),
    };
    Ok(Html(Page { frame, consumers, one }.render()?))
}

async fn rows<DB: Dialect>(app: &App<DB>) -> Result<Vec<Row>, Failure> {
    let row = |one: &ConsumerInfo| Row {
        name: plain(&one.consumer),
        link: link("/consumers", &[("name", &one.consumer)]),
        seen: format!("{} ago", duration(one.silent)),
        is_silent: one.silent > app.bounds.max_silence,
        pause_reason: one.pause_reason.as_deref().map(plain),
        parked: bounded_number(one.parked_deliveries),
        dead_letters: bounded_number(one.dead_letters),
    };
    Ok(app.ops.consumers().await?.iter().map(row).collect())
}

async fn one<DB: Dialect>(app: &App<DB>, name: &str) -> Result<One, Failure> {
    let backlog = app.ops.consumer_backlog(name).await?;
    let own = format!("consumer:{name}");
    let readers = app.ops.readers().await?;
    let behind_in_log =
        readers.iter().find(|reader| reader.name == own).map(|reader| bounded_number(reader.backlog));
    let checkpoints = app.ops.partition_checkpoints(name).await?;
    let lags = match &app.broker {
        Some(broker) if behind_in_log.is_none() => {
            broker::ask(&**broker, name, backlog.address.as_deref(), &checkpoints).await
        }
        _ => Ok(Vec::new()),
    };
    let (lags, broker_error) = match lags {
        Ok(lags) => (lags, None),
        Err(error) => (Vec::new(), Some(plain(&error))),
    };
    let ago = |time: Option<Duration>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{} ago", duration(time)))
    };
    let deliveries = app.ops.parked_deliveries(name, PARKED_MAX).await?;
    Ok(One {
        is_known: backlog.silent.is_some(),
        seen: ago(backlog.silent),
        pause_reason: backlog.pause_reason.as_deref().map(plain),
        parked: bounded_number(backlog.parked),
        oldest_parked: ago(backlog.oldest_parked),
        dead_letters: bounded_number(backlog.dead_letters),
        oldest_dead_letter: ago(backlog.oldest_dead_letter),
        last_claim: ago(backlog.last_claim),
        behind_in_log,
        behind_at_broker: (!lags.is_empty()).then(|| Behind::of_all(&lags)),
        broker_error,
        has_broker: app.broker.is_some(),
        partitions: checkpoints.iter().enumerate().map(|(at, one)| row_of(one, lags.get(at))).collect(),
        deliveries: deliveries.iter().map(delivery_row).collect(),
        dead_letters_link: link("/dead-letters", &[("consumer", name)]),
        pause_link: link("/changes/pause-consumer", &[("name", name)]),
        resume_link: link("/changes/resume-consumer", &[("name", name)]),
        retry_link: link("/changes/retry-parked", &[("consumer", name)]),
    })
}

impl One {
    /// Whether the broker was asked, answered, and does not know the consumer.
    fn is_unknown_there(&self) -> bool {
        let was_asked = self.has_broker && self.behind_in_log.is_none() && self.broker_error.is_none();
        was_asked && self.behind_at_broker.is_none()
    }
}

impl Behind {
    fn of(lag: &Lag) -> Self {
        Self {
            messages: number(lag.messages),
            oldest_at: lag.oldest_at.map(Moment),
            restarts_because: lag.restarts_because,
        }
    }

    fn of_all(lags: &[Lag]) -> Self {
        Self::of(&Lag {
            messages: lags.iter().map(|lag| lag.messages).sum(),
            oldest_at: lags.iter().filter_map(|lag| lag.oldest_at).min(),
            restarts_because: None,
        })
    }
}

fn row_of(checkpoint: &PartitionCheckpoint, lag: Option<&Lag>) -> PartitionRow {
    PartitionRow {
        partition: checkpoint.partition,
        owner: checkpoint.owner.map(|owner| owner.to_string()),
        settled: checkpoint.checkpoint.sequence,
        log: plain(&checkpoint.checkpoint.log),
        behind: lag.map(Behind::of),
    }
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
        error: why_parked(delivery),
    }
}
