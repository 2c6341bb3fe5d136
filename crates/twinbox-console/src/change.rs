//! The pages of changes: a preview, and making the change.
use crate::{
    app::App,
    changes::{self, Fields, Prepared},
    failure::{Failure, Reply},
    frame::{Frame, Visit},
    query::given,
};
use askama::Template;
use axum::{
    Form,
    extract::{Path, Query, State},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::sync::Arc;
use twinbox_ops::Dialect;
use twinbox_ops::task_name::TaskName;

type Shared<DB> = Arc<App<DB>>;

/// The fields of the form of a preview.
#[derive(Debug, Deserialize)]
pub(crate) struct Confirmed {
    #[serde(default)]
    csrf: String,
    /// The number of the form.
    form: Option<u64>,
    reason: Option<String>,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Template)]
#[template(path = "change.html")]
struct Page {
    frame: Frame,
    verb: String,
    prepared: Prepared,
    /// The number of the form, for whom may change something.
    form: Option<u64>,
}

pub(crate) async fn preview<DB: Dialect>(
    State(app): State<Shared<DB>>,
    visit: Visit,
    Path(verb): Path<String>,
    Query(fields): Query<Fields>,
) -> Reply {
    let prepared = changes::prepare(&app, &verb, &fields).await?;
    let frame = Frame::new(&app, &visit, "", prepared.title);
    let form = frame.may_change.then(|| app.gate.forms.begin());
    Ok(Html(Page { frame, verb, prepared, form }.render()?))
}

pub(crate) async fn confirm<DB: Dialect>(
    State(app): State<Shared<DB>>,
    visit: Visit,
    Path(verb): Path<String>,
    Form(confirmed): Form<Confirmed>,
) -> Result<Response, Failure> {
    if !visit.may_change(&app.gate) {
        return Err(Failure::forbidden(match app.gate.access.allows_changes {
            true => "You may look, and change nothing.",
            false => "This console only shows: start it with --allow-changes.",
        }));
    }
    let form = confirmed.form.filter(|_| app.gate.csrf.is_good(&visit.holder, &confirmed.csrf));
    let Some(form) = form else {
        return Err(Failure::forbidden("The form is out of date: go back, load the page again, and repeat."));
    };
    let reason = given(&confirmed.reason)?;
    let prepared = changes::prepare(&app, &verb, &confirmed.fields).await.map_err(Failure::before_change)?;
    if let Some(nothing) = prepared.nothing {
        return Err(Failure::bad_request(nothing));
    }
    if prepared.needs_reason && reason.is_none() {
        return Err(Failure::bad_request("Write a reason: it is kept in the audit."));
    }
    if !app.gate.forms.take(form) {
        return Err(Failure::sent_before());
    }
    // A browser that goes away does not stop a change half-way, and neither does the time limit of a page.
    let changes = app.changes.clone();
    let change =
        async move { changes::make(&app.ops, prepared, &visit.principal.name, reason.as_deref()).await };
    let made =
        changes.spawn(TaskName::ConsoleChange.of(change)).await.unwrap_or_else(|_| Err(Failure::in_doubt()));
    Ok(Redirect::to(&made.map_err(Failure::of_change)?).into_response())
}
