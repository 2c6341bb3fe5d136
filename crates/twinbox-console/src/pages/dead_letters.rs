//! Dead letters: their groups, a list, and one with its message.
use crate::{
    app::App,
    changes::Fields,
    failure::{Failure, Reply},
    frame::{Frame, Visit},
    links::link,
    moment::Moment,
    query::{self, given},
    view::{DeadLetterRow, MessageView, owner_field},
};
use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use futures::{StreamExt as _, TryStreamExt as _, stream, try_join};
use serde::Deserialize;
use std::sync::Arc;
use twinbox_ops::{
    Dialect, Ops,
    dead_letters::{
        DeadLetterFilter, DeadLetterGroup, DeadLetterId, DeadLetterOwner, DeadLetterPlace, LATELY,
    },
    wording::{number_or_more, plain},
};

/// Dead letters of a page.
const PAGE: usize = 50;
/// Lists that are read at the same time, each on a connection.
const READ_AT_ONCE: usize = 3;
/// The most groups of the page.
const SHOWN_MAX: usize = 100;

/// The fields of the address of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Listed {
    #[serde(flatten)]
    fields: Fields,
    before: Option<String>,
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct Groups {
    frame: Frame,
    owner: Option<String>,
    groups: Vec<GroupRow>,
    has_more: bool,
    form: SearchForm,
    owners: Vec<(String, String)>,
}

struct GroupRow {
    fingerprint: String,
    link: String,
    owner: String,
    owner_kind: &'static str,
    event_type: String,
    reason: String,
    error: String,
    count: String,
    redriven: u64,
    a_minute: String,
    first: Moment,
    last: Moment,
    redrive_link: String,
    discard_link: String,
}

/// What the search form shows again.
#[derive(Default)]
struct SearchForm {
    consumer: String,
    destination: String,
    group: String,
    types: String,
    key: String,
    message: String,
    since: String,
    until: String,
}

#[derive(Template)]
#[template(path = "dead_letters_list.html")]
struct List {
    frame: Frame,
    form: SearchForm,
    lists: Vec<OwnerList>,
}

struct OwnerList {
    owner: String,
    rows: Vec<DeadLetterRow>,
    next: Option<String>,
    stopped_at: Option<Moment>,
    redrive_link: String,
    discard_link: String,
}

#[derive(Template)]
#[template(path = "dead_letter.html")]
struct One {
    frame: Frame,
    row: DeadLetterRow,
    owner: String,
    owner_kind: &'static str,
    group: String,
    group_link: String,
    event_id: String,
    message_link: String,
    message: MessageView,
    redrive_link: String,
    discard_link: String,
}

impl SearchForm {
    fn of(fields: &Fields) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            consumer: text(&fields.consumer),
            destination: text(&fields.destination),
            group: text(&fields.group),
            types: text(&fields.types),
            key: text(&fields.key),
            message: text(&fields.message),
            since: text(&fields.since),
            until: text(&fields.until),
        }
    }

    /// The parts of an address that select the same dead letters of one owner.
    fn parts<'a>(&'a self, owner: &'a DeadLetterOwner) -> Vec<(&'static str, &'a str)> {
        let (consumer, destination) = match owner {
            DeadLetterOwner::Consumer(name) => (&**name, ""),
            DeadLetterOwner::Destination(id) => ("", &**id),
        };
        vec![
            ("consumer", consumer),
            ("destination", destination),
            ("group", &self.group),
            ("type", &self.types),
            ("key", &self.key),
            ("message", &self.message),
            ("since", &self.since),
            ("until", &self.until),
        ]
    }
}

pub(crate) async fn groups<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(fields): Query<Fields>,
) -> Reply {
    let filter = DeadLetterFilter {
        consumer: given(&fields.consumer)?,
        destination: given(&fields.destination)?,
        ..DeadLetterFilter::default()
    };
    let all = DeadLetterFilter::default();
    let (found, owners) = try_join!(app.ops.dead_letter_groups(&filter), app.ops.dead_letter_owners(&all))?;
    let page = Groups {
        frame: Frame::new(&app, &visit, "/dead-letters", "Dead letters"),
        owner: filter.owner().map(|owner| plain(&owner.to_string())),
        has_more: found.len() > SHOWN_MAX,
        groups: found.iter().take(SHOWN_MAX).map(group_row).collect(),
        form: SearchForm::of(&fields),
        owners: owners.iter().map(owner_link).collect(),
    };
    Ok(Html(page.render()?))
}

fn owner_link(owner: &DeadLetterOwner) -> (String, String) {
    let field = match owner {
        DeadLetterOwner::Consumer(_) => "consumer",
        DeadLetterOwner::Destination(_) => "destination",
    };
    (plain(&owner.to_string()), link("/dead-letters", &[(field, owner.name())]))
}

fn group_row(group: &DeadLetterGroup) -> GroupRow {
    let newest = &group.newest;
    let selects = [(owner_field(&newest.id), &*newest.owner), ("group", &group.fingerprint)];
    GroupRow {
        fingerprint: group.fingerprint.clone(),
        link: link("/dead-letters/list", &selects),
        owner: plain(&newest.owner),
        owner_kind: owner_field(&newest.id),
        event_type: plain(&newest.event_type),
        reason: plain(&newest.reason),
        error: plain(&newest.error),
        count: number_or_more(group.dead_letters, group.has_more),
        redriven: group.redriven,
        a_minute: a_minute(group),
        first: Moment(group.first_given_up_at),
        last: Moment(group.last_given_up_at),
        redrive_link: link("/changes/redrive", &selects),
        discard_link: link("/changes/discard", &selects),
    }
}

/// How many a minute, lately.
fn a_minute(group: &DeadLetterGroup) -> String {
    let rate = group.lately as f64 * 60.0 / LATELY.as_secs_f64();
    let more = if group.has_more && group.lately == group.dead_letters { "+" } else { "" };
    match group.lately {
        0 => "0".to_owned(),
        _ if rate < 10.0 => format!("{rate:.1}{more}"),
        _ => format!("{rate:.0}{more}"),
    }
}

pub(crate) async fn list<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(Listed { fields, before }): Query<Listed>,
) -> Reply {
    let filter = crate::changes::filter(&app.ops, &fields).await?;
    let before = given(&before)?.map(|text| text.parse::<DeadLetterPlace>());
    let before = before.transpose().map_err(Failure::bad_request)?;
    let form = SearchForm::of(&fields);
    let owners = app.ops.dead_letter_owners(&filter).await?.into_iter();
    let lists = stream::iter(owners.map(|owner| owner_list(&app.ops, owner, &filter, before, &form)));
    let mut lists: Vec<_> = lists.buffered(READ_AT_ONCE).try_collect().await?;
    // Owners without a match are left out, unless the search names one.
    if filter.owner().is_none() {
        lists.retain(|list| !list.rows.is_empty() || list.next.is_some());
    }
    let frame = Frame::new(&app, &visit, "/dead-letters", "Dead letters that match");
    Ok(Html(List { frame, form, lists }.render()?))
}

async fn owner_list<DB: Dialect>(
    ops: &Ops<DB>,
    owner: DeadLetterOwner,
    filter: &DeadLetterFilter,
    before: Option<DeadLetterPlace>,
    form: &SearchForm,
) -> Result<OwnerList, Failure> {
    let narrowed = DeadLetterFilter {
        consumer: DeadLetterFilter::of(&owner).consumer,
        destination: DeadLetterFilter::of(&owner).destination,
        ..filter.clone()
    };
    let page = ops.dead_letters(&owner, &narrowed, before, PAGE).await?;
    let parts = form.parts(&owner);
    let with = |place: DeadLetterPlace| {
        let place = place.to_string();
        link("/dead-letters/list", &[&*parts, &[("before", &*place)]].concat())
    };
    Ok(OwnerList {
        rows: page.dead_letters.iter().map(DeadLetterRow::from).collect(),
        next: page.next.map(with),
        stopped_at: page.stopped_at.map(Moment),
        redrive_link: link("/changes/redrive", &parts),
        discard_link: link("/changes/discard", &parts),
        owner: plain(&owner.to_string()),
    })
}

pub(crate) async fn one<DB: Dialect>(
    State(app): State<Arc<App<DB>>>,
    visit: Visit,
    Query(fields): Query<Fields>,
) -> Reply {
    let id = query::given(&fields.id)?.unwrap_or_default();
    let id: DeadLetterId = id.parse().map_err(Failure::bad_request)?;
    let Some(found) = app.ops.dead_letter(&id).await? else {
        return Err(Failure::not_found("There is no such dead letter any more."));
    };
    let message = app.ops.dead_letter_message(&id).await?;
    let (field, id) = (owner_field(&found.id), id.to_string());
    let selects = [(field, &*found.owner), ("id", &*id)];
    let page = One {
        frame: Frame::new(&app, &visit, "/dead-letters", format!("Dead letter {}", plain(&id))),
        row: DeadLetterRow::from(&found),
        owner: plain(&found.owner),
        owner_kind: field,
        group: found.fingerprint.clone(),
        group_link: link("/dead-letters/list", &[(field, &*found.owner), ("group", &found.fingerprint)]),
        event_id: plain(&found.event_id),
        message_link: link("/messages", &[("id", &found.event_id)]),
        message: MessageView::of(&app.ops, &message),
        redrive_link: link("/changes/redrive", &selects),
        discard_link: link("/changes/discard", &selects),
    };
    Ok(Html(page.render()?))
}
