//! Which operation a request asks for.
use crate::settings::{Caller, Settings};
use axum::{
    extract::MatchedPath,
    http::{HeaderMap, request::Parts},
};
use twinbox_sql::{Dialect, operation::OperationKey};

/// Headers that only answers have: a handler must not take a caller's for ours.
const OF_ANSWERS: [&str; 3] = ["idempotency-status", "idempotency-body", "idempotent-replayed"];

pub(crate) fn strip(headers: &mut HeaderMap) {
    for name in OF_ANSWERS {
        headers.remove(name);
    }
}

impl<DB: Dialect> Settings<DB> {
    /// None: nobody said what the keys are for.
    pub(crate) fn scope_of(&self, parts: &Parts) -> Option<String> {
        let declared = || {
            let route = parts.extensions.get::<MatchedPath>()?;
            Some(format!("{}_{}", parts.method, route.as_str()))
        };
        self.scope.clone().or_else(declared)
    }

    pub(crate) fn key_of(&self, parts: &Parts, scope: String, key: String) -> OperationKey {
        let Caller { tenant, principal } = (self.caller)(parts);
        OperationKey { tenant, principal, is_shared: self.shared, scope, key }
    }
}
