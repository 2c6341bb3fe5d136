//! The overview: everything that runs, and what is wrong.
use crate::{
    app::App,
    changes::done,
    chart,
    failure::{Failure, Reply},
    filters,
    frame::{Frame, Visit},
    links::link,
    moment::Moment,
};
use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use twinbox_ops::{
    ConsumerInfo, Dialect, DriftCheck, JobInfo, ReaderStatus, Replay, VendorInfo,
    dead_letters::BulkAction,
    effects::EffectProblems,
    wording::{bounded_number, duration, number, plain},
};

/// Replays and bulk actions among which running ones are looked for.
const LOOKED_AT_MAX: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    live: String,
}

#[derive(Template)]
#[template(path = "overview_live.html")]
struct Live {
    may_change: bool,
    now: Moment,
    alarms: Vec<String>,
    readers: Vec<ReaderRow>,
    consumers: Vec<ConsumerRow>,
    replays: Vec<Replay>,
    bulk_actions: Vec<BulkAction>,
    problems: EffectProblems,
    vendors: Vec<VendorRow>,
    jobs: Vec<JobInfo>,
    drift: Vec<DriftCheck>,
}

struct ReaderRow {
    name: String,
    state: &'static str,
    is_wrong: bool,
    pause_reason: Option<String>,
    backlog: String,
    oldest: String,
    parked: String,
    dead_letters: String,
    dead_letters_link: String,
    backlog_line: String,
    rate_line: String,
    rate: String,
    change: &'static str,
    change_link: String,
}

struct ConsumerRow {
    name: String,
    link: String,
    state: &'static str,
    is_wrong: bool,
    pause_reason: Option<String>,
    seen: String,
    parked: String,
    dead_letters: String,
    dead_letters_link: String,
}

struct VendorRow {
    name: String,
    link: String,
    state: String,
    waiting: String,
    overdue: String,
}

pub(crate) async fn page<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Done { done: word }): Query<Done>,
) -> Reply {
    let frame = Frame::new(&app, &visit, "/", "Overview").done(done(word.as_deref()));
    let live = read(&app, frame.may_change).await?;
    Ok(Html(Page { frame, live }.render()?))
}

pub(crate) async fn live<DB: Dialect>(State(app): State<Arc<App<DB>>>, visit: Visit) -> Reply {
    Ok(Html(read(&app, visit.may_change(&app.gate)).await?))
}

async fn read<DB: Dialect>(app: &Arc<App<DB>>, may_change: bool) -> Result<String, Failure> {
    let (ops, bounds) = (&app.ops, &app.bounds);
    let (readers, consumers) = (ops.readers().await?, ops.consumers().await?);
    let (problems, vendors) = (ops.effect_problems(bounds.failed_within).await?, ops.vendors().await?);
    let mut replays = ops.replays(LOOKED_AT_MAX).await?;
    replays.retain(|replay| !replay.state.has_ended());
    let mut bulk_actions = ops.bulk_actions(LOOKED_AT_MAX).await?;
    bulk_actions.retain(|action| !action.state.has_ended());
    let live = Live {
        may_change,
        now: Moment(ops.now().await?),
        alarms: bounds.alarms(ops.delayed_overdue().await?, &readers, &consumers, &problems, &vendors),
        readers: readers.iter().map(|reader| reader_row(app, reader)).collect(),
        consumers: consumers.iter().map(|consumer| consumer_row(app, consumer)).collect(),
        replays,
        bulk_actions,
        problems,
        vendors: vendors.iter().map(vendor_row).collect(),
        jobs: ops.jobs().await?,
        drift: ops.drift().await?,
    };
    Ok(live.render()?)
}

fn reader_row<DB: Dialect>(app: &Arc<App<DB>>, reader: &ReaderStatus) -> ReaderRow {
    let series = app.samples.series(&reader.name);
    let (state, is_wrong) = match reader {
        _ if reader.is_detached => ("detached", true),
        _ if reader.pause_reason.is_some() => ("paused", false),
        _ if reader.blocking > 0 => ("blocked", true),
        _ if reader.lease.is_some() => ("running", false),
        _ => ("not running", reader.unowned > app.bounds.max_unowned),
    };
    let name = &reader.name;
    let verb = if reader.pause_reason.is_some() { "resume" } else { "pause" };
    ReaderRow {
        name: plain(name),
        state,
        is_wrong: is_wrong || reader.oldest > app.bounds.max_age,
        pause_reason: reader.pause_reason.as_deref().map(plain),
        backlog: bounded_number(reader.backlog),
        oldest: age(reader.oldest),
        parked: bounded_number(reader.waiting),
        dead_letters: bounded_number(reader.dead_letters + reader.blocking),
        dead_letters_link: link("/dead-letters", &[("destination", name)]),
        backlog_line: chart::line(&series.backlog),
        rate_line: chart::line(&series.rate),
        rate: series.rate.last().map_or_else(|| "-".to_owned(), |rate| number(rate.round() as u64)),
        change: verb,
        change_link: link(&format!("/changes/{verb}-destination"), &[("name", name)]),
    }
}

fn consumer_row<DB: Dialect>(app: &Arc<App<DB>>, consumer: &ConsumerInfo) -> ConsumerRow {
    let is_silent = consumer.silent > app.bounds.max_silence;
    let name = &consumer.consumer;
    ConsumerRow {
        name: plain(name),
        link: link("/consumers", &[("name", name)]),
        state: match (&consumer.pause_reason, is_silent) {
            (Some(_), _) => "paused",
            (None, true) => "silent",
            (None, false) => "running",
        },
        is_wrong: is_silent,
        pause_reason: consumer.pause_reason.as_deref().map(plain),
        seen: format!("{} ago", duration(consumer.silent)),
        parked: bounded_number(consumer.parked_deliveries),
        dead_letters: bounded_number(consumer.dead_letters),
        dead_letters_link: link("/dead-letters", &[("consumer", name)]),
    }
}

fn vendor_row(vendor: &VendorInfo) -> VendorRow {
    let state = match (&vendor.pause_reason, vendor.closed_for) {
        (Some(reason), _) => format!("paused: {}", plain(reason)),
        (None, Duration::ZERO) => "open".to_owned(),
        (None, closed) => format!("closed for {}", duration(closed)),
    };
    VendorRow {
        name: plain(&vendor.vendor),
        link: link("/effects", &[("vendor", &vendor.vendor)]),
        state,
        waiting: bounded_number(vendor.waiting),
        overdue: age(vendor.overdue),
    }
}

/// The age of the oldest of several things. Zero: there is none.
fn age(age: Duration) -> String {
    if age.is_zero() { "-".to_owned() } else { duration(age) }
}
