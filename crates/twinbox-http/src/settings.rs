//! The settings of a route, and the state that its requests share.
use crate::{
    body::BodyReader, caller::Caller, key::KeySyntax, problem::ProblemStyle, render::Render, turns::Turns,
};
use axum::http::{HeaderName, request::Parts};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use twinbox_sql::{
    Dialect, Error, Store,
    operation::{Operation, OperationPolicy},
};

const RESPONSE_BYTES_MAX: usize = 64 * 1024;
pub(crate) const HANDLER_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests that wait for another process may use one connection in this many.
const CONNECTIONS_PER_WAITER: usize = 4;

pub(crate) struct Settings<DB: Dialect> {
    pub(crate) store: Store<DB>,
    pub(crate) scope: Option<String>,
    pub(crate) policy: OperationPolicy,
    /// How long a lease holds the key. `None`: a transaction holds it.
    pub(crate) lease: Option<Duration>,
    pub(crate) handler_timeout: Duration,
    pub(crate) key_syntax: KeySyntax,
    pub(crate) requires_key: bool,
    pub(crate) stores_errors: bool,
    pub(crate) refuses_unused: bool,
    /// JSON pointers to members that do not count when requests are compared.
    pub(crate) excluded: Vec<String>,
    pub(crate) body_reader: BodyReader,
    pub(crate) response_bytes_max: usize,
    pub(crate) stores_bodies: bool,
    pub(crate) added_headers: Vec<HeaderName>,
    pub(crate) attempts_max: Option<u32>,
    pub(crate) problem_style: ProblemStyle,
    pub(crate) counts_aliases: bool,
    pub(crate) is_shared_by_tenant: bool,
    pub(crate) caller: Arc<dyn Fn(&Parts) -> Caller + Send + Sync>,
    pub(crate) render: Option<Arc<Render>>,
    pub(crate) turns: Arc<Turns>,
    /// Requests that run, including those whose callers have disconnected.
    pub(crate) running: TaskTracker,
    /// Permits to wait for another process: each waiting request uses a connection.
    pub(crate) wait_permits: Arc<Semaphore>,
}

impl<DB: Dialect> Settings<DB> {
    pub(crate) async fn begin_without_key(&self) -> Result<Operation<DB>, Error> {
        self.store.idempotency_keys().begin_without_key_within(self.handler_timeout).await
    }

    pub(crate) fn new(store: Store<DB>, caller: Arc<dyn Fn(&Parts) -> Caller + Send + Sync>) -> Self {
        let connections = usize::try_from(store.pool().options().get_max_connections()).unwrap_or(usize::MAX);
        let waiters = (connections / CONNECTIONS_PER_WAITER).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            store,
            scope: None,
            policy: OperationPolicy { idle_max: HANDLER_TIMEOUT, ..OperationPolicy::default() },
            lease: None,
            handler_timeout: HANDLER_TIMEOUT,
            key_syntax: KeySyntax::default(),
            requires_key: true,
            stores_errors: false,
            refuses_unused: cfg!(debug_assertions),
            excluded: Vec::new(),
            body_reader: BodyReader::default(),
            response_bytes_max: RESPONSE_BYTES_MAX,
            stores_bodies: true,
            added_headers: Vec::new(),
            attempts_max: None,
            problem_style: ProblemStyle::default(),
            counts_aliases: false,
            is_shared_by_tenant: false,
            caller,
            render: None,
            turns: Arc::default(),
            running: TaskTracker::new(),
            wait_permits: Arc::new(Semaphore::new(waiters)),
        }
    }
}

impl<DB: Dialect> Clone for Settings<DB> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            scope: self.scope.clone(),
            key_syntax: self.key_syntax.clone(),
            excluded: self.excluded.clone(),
            body_reader: self.body_reader.clone(),
            added_headers: self.added_headers.clone(),
            problem_style: self.problem_style.clone(),
            caller: self.caller.clone(),
            render: self.render.clone(),
            turns: self.turns.clone(),
            running: self.running.clone(),
            wait_permits: self.wait_permits.clone(),
            ..*self
        }
    }
}
