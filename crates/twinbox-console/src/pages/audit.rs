//! Changes that operators made.
use crate::{
    app::App,
    failure::Reply,
    filters,
    frame::{Frame, Visit},
};
use askama::Template;
use axum::{extract::State, response::Html};
use std::sync::Arc;
use twinbox_ops::{AuditEntry, Dialect};

/// The most entries of the page.
const ENTRIES_MAX: u32 = 200;

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    frame: Frame,
    entries: Vec<AuditEntry>,
    is_full: bool,
}

pub(crate) async fn page<DB: Dialect>(State(app): State<Arc<App<DB>>>, visit: Visit) -> Reply {
    let entries = app.ops.audit(ENTRIES_MAX).await?;
    let is_full = entries.len() >= ENTRIES_MAX as usize;
    Ok(Html(Page { frame: Frame::new(&app, &visit, "/audit", "Audit"), entries, is_full }.render()?))
}
