//! What every page has around it, and who looks at it.
use crate::{
    access::{Principal, Role},
    app::{App, Gate},
};
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use std::sync::Arc;
use twinbox_ops::Dialect;

/// A request of somebody who was let in.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    pub(crate) principal: Principal,
    /// The id of the session, or the name of the principal.
    pub(crate) holder: String,
    pub(crate) has_session: bool,
}

impl Visit {
    pub(crate) fn may_change(&self, gate: &Gate) -> bool {
        gate.access.allows_changes && self.principal.role >= Role::Operator
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Visit {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Self>().cloned().ok_or(StatusCode::UNAUTHORIZED)
    }
}

/// The frame of a page.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) title: String,
    /// The part of the navigation to which the page belongs.
    pub(crate) section: &'static str,
    pub(crate) service: String,
    pub(crate) database: String,
    pub(crate) visitor: String,
    pub(crate) may_change: bool,
    pub(crate) has_session: bool,
    pub(crate) csrf: String,
    /// A sentence about the change that led here.
    pub(crate) done: Option<&'static str>,
}

impl Frame {
    /// The parts of the navigation: path, name.
    pub(crate) const SECTIONS: [(&'static str, &'static str); 8] = [
        ("/", "Overview"),
        ("/dead-letters", "Dead letters"),
        ("/messages", "Messages"),
        ("/keys", "Keys"),
        ("/consumers", "Consumers"),
        ("/replays", "Replays"),
        ("/effects", "Effects"),
        ("/audit", "Audit"),
    ];

    pub(crate) fn new<DB: Dialect>(
        app: &Arc<App<DB>>,
        visit: &Visit,
        section: &'static str,
        title: impl Into<String>,
    ) -> Self {
        Self {
            title: title.into(),
            section,
            service: app.ops.service().to_owned(),
            database: app.database.clone(),
            visitor: visit.principal.name.clone(),
            may_change: visit.may_change(&app.gate),
            has_session: visit.has_session,
            csrf: app.gate.csrf.token(&visit.holder),
            done: None,
        }
    }

    /// Whether the page belongs to a part of the navigation.
    pub(crate) fn is_in(&self, path: &str) -> bool {
        self.section == path
    }

    pub(crate) fn done(self, done: Option<&'static str>) -> Self {
        Self { done, ..self }
    }
}
