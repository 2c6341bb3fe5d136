//! What becomes of a handler's answer and of what it wrote.
use crate::{
    disposition::Disposition,
    problem::Problem,
    request::{Asked, uri},
    settings::Settings,
    tx::{Held, Work},
};
use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Response, StatusCode, request::Parts},
};
use std::{sync::Arc, time::Duration};
use tracing::Span;
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    operation::{Answer, Begun, Lease, Operation, OperationKey},
};

/// How often the outcome of a commit whose answer was lost is asked for, and how long between.
const ASKED_AGAIN: (u32, Duration) = (5, Duration::from_millis(200));
pub(crate) const STATUS: HeaderName = HeaderName::from_static("idempotency-status");

/// What a commit has written.
enum Wrote {
    Now,
    /// Somebody else was faster.
    Before(Answer),
}

/// One request.
pub(crate) struct Call<DB: Dialect> {
    pub(crate) settings: Arc<Settings<DB>>,
    path: String,
    pub(crate) scope: String,
    /// As logs have them.
    key: String,
    payload_hash: String,
}

impl<DB: Dialect> Call<DB> {
    pub(crate) fn new(settings: &Arc<Settings<DB>>, parts: &Parts) -> Self {
        Self {
            settings: settings.clone(),
            path: uri(parts).path().to_owned(),
            scope: settings.scope_of(parts).unwrap_or_default(),
            key: String::new(),
            payload_hash: String::new(),
        }
    }

    pub(crate) fn of_key(self, key: &OperationKey, digest: &[u8; 32]) -> Self {
        let hex = |digest: &[u8]| String::from_iter(digest[..4].iter().map(|byte| format!("{byte:02x}")));
        let name = if self.settings.keys_logged { key.key.clone() } else { hex(&key.slot()) };
        Self { key: name, payload_hash: hex(digest), ..self }
    }

    pub(crate) fn span(&self) -> Span {
        let Self { scope, key, payload_hash, .. } = self;
        tracing::info_span!(
            "idempotency",
            idempotency_key = key,
            scope,
            payload_hash,
            attempt = tracing::field::Empty
        )
    }

    /// Commits or undoes what the handler wrote, by what it answered, and answers.
    pub(crate) async fn settle(
        &self,
        key: &OperationKey,
        asked: &Asked,
        held: Held<DB>,
        response: Option<Response<Body>>,
        again: Option<Parts>,
    ) -> Response<Body> {
        let is_kept = held.is_kept();
        let work = held.take();
        if is_kept || work.operation.is_none() && work.lease.is_none() {
            tracing::error!(
                scope = self.scope,
                "a handler kept what it got of its key, so nothing can be committed"
            );
            return self.refused(Problem::NotUsed);
        }
        if held.is_fenced() {
            return self.fenced(key, asked, again).await;
        }
        let is_last =
            self.settings.attempts_max.is_some_and(|max| work.lease.is_some() && work.attempt() >= max);
        let Some(mut response) = response.or_else(|| is_last.then(|| self.exhausted())) else {
            return self.undone(work, self.refused(Problem::Failed)).await;
        };
        let disposition = response.extensions_mut().remove::<Disposition>();
        let disposition = match disposition
            .unwrap_or_else(|| Disposition::of(response.status(), self.settings.errors_kept))
        {
            Disposition::Fault if is_last => Disposition::RejectKeep,
            disposition => disposition,
        };
        if matches!(disposition, Disposition::Reject | Disposition::Fault) {
            self.say("undone", Some(response.status()), None);
            return match disposition {
                Disposition::Reject => self.forgotten(work, response).await,
                _ => self.undone(work, response).await,
            };
        }
        if disposition == Disposition::Commit && !held.is_used() {
            metrics::counter!("idempotent.unused", "scope" => self.scope.clone()).increment(1);
            tracing::error!(
                scope = self.scope,
                "the handler takes no `IdemTx`, so nothing that it writes commits with its key: add one to its arguments"
            );
            if self.settings.unused_refused {
                return self.undone(work, self.refused(Problem::NotUsed)).await;
            }
        }
        let (answer, response) = match self.as_answer(response, disposition).await {
            Ok(both) => both,
            Err(error) => {
                tracing::error!(error = &*error, scope = self.scope, "the handler's answer broke off");
                return self.undone(work, self.refused(Problem::Failed)).await;
            }
        };
        let (begun, lease) = self.to_end(key, asked, work, answer.failed).await;
        let operation = match begun {
            Ok(Begun::Open(operation)) => operation,
            Ok(Begun::Known(answer)) => return self.replay(answer, again).await,
            Ok(Begun::Mismatch) => return self.refused(Problem::Mismatch),
            Ok(Begun::InFlight) => return self.refused(Problem::InProgress),
            Ok(Begun::TooMany) => return self.refused(Problem::TooManyKeys),
            Err(error) if error.kind() == ErrorKind::LeaseLost => {
                return self.fenced(key, asked, again).await;
            }
            Err(error) => {
                return self.undone(Work { operation: None, lease }, self.store_away(&error)).await;
            }
        };
        match self.commit(key, asked, operation, &answer).await {
            Ok(Wrote::Now) => {}
            Ok(Wrote::Before(stored)) => return self.replay(stored, again).await,
            Err(response) => return self.undone(Work { operation: None, lease }, response).await,
        }
        if is_last && answer.failed {
            self.count("idempotent.exhausted");
            tracing::error!(
                scope = self.scope,
                idempotency_key = self.key,
                "a request has failed as often as it may, and is not tried again: see how far it has come"
            );
        }
        self.count("idempotent.created");
        self.settings.rate.created(&self.scope);
        self.say("created", Some(response.status()), None);
        let mut response = response;
        response.headers_mut().insert(STATUS, HeaderValue::from_static("stored"));
        response
    }

    /// The transaction in which the operation ends: the handler's, or one that has nothing of it.
    async fn to_end(
        &self,
        key: &OperationKey,
        asked: &Asked,
        Work { operation, lease }: Work<DB>,
        without: bool,
    ) -> (Result<Begun<Operation<DB>>, Error>, Option<Lease<DB>>) {
        let operation = match operation {
            Some(operation) if without => {
                operation.abandon().await;
                None
            }
            operation => operation,
        };
        let begun = match (operation, &lease) {
            (Some(operation), _) => Ok(Begun::Open(operation)),
            (None, Some(lease)) => lease.begin().await.map(Begun::Open),
            // Somebody else may have been faster in between: then that one's outcome counts.
            (None, None) => {
                let begun = self.settings.try_begin(key, asked, &self.settings.policy).await;
                let operation =
                    |work: Work<DB>| work.operation.expect("a route without a lease begins a transaction");
                begun.map(|begun| begun.map(operation))
            }
        };
        (begun, lease)
    }

    /// Whoever has the key now has ended it, or will.
    async fn fenced(&self, key: &OperationKey, asked: &Asked, again: Option<Parts>) -> Response<Body> {
        self.count("idempotent.fenced");
        match self.settings.find(key, asked).await {
            Ok(Some(answer)) => self.replay(answer, again).await,
            Ok(None) => self.refused(Problem::InProgress),
            Err(error) => self.store_away(&error),
        }
    }

    /// An error: what the caller is told.
    async fn commit(
        &self,
        key: &OperationKey,
        asked: &Asked,
        operation: Operation<DB>,
        answer: &Answer,
    ) -> Result<Wrote, Response<Body>> {
        crash::point("request.before_commit");
        match operation.commit(answer).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::CommitUnknown => {
                match self.ask_again(key, asked).await {
                    Some(stored) if stored == *answer => {}
                    Some(stored) => return Ok(Wrote::Before(stored)),
                    None => return Err(self.store_away(&error)),
                }
            }
            Err(error) if error.is_transient() => return Err(self.store_away(&error)),
            Err(error) => return Err(self.not_committed(&error, Problem::Failed)),
        }
        crash::point("request.after_commit");
        Ok(Wrote::Now)
    }

    async fn ask_again(&self, key: &OperationKey, asked: &Asked) -> Option<Answer> {
        for _ in 0..ASKED_AGAIN.0 {
            if let Ok(Some(answer)) = self.settings.find(key, asked).await {
                return Some(answer);
            }
            tokio::time::sleep(ASKED_AGAIN.1).await;
        }
        None
    }

    /// After a failure: whoever asks the same may try again.
    async fn undone(&self, Work { operation, lease }: Work<DB>, response: Response<Body>) -> Response<Body> {
        if let Some(operation) = operation {
            operation.abandon().await;
        }
        if let Some(lease) = lease {
            self.left(lease.release().await);
        }
        response
    }

    /// After a refusal: any request may use the key.
    async fn forgotten(
        &self,
        Work { operation, lease }: Work<DB>,
        response: Response<Body>,
    ) -> Response<Body> {
        if let Some(operation) = operation {
            operation.abandon().await;
        }
        if let Some(lease) = lease {
            self.left(lease.forget().await);
        }
        response
    }

    fn left(&self, released: Result<(), Error>) {
        if let Err(error) = released {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                scope = self.scope,
                "a key is held until its lease ends"
            );
        }
    }

    pub(crate) async fn settle_without_key(
        self,
        held: Held<DB>,
        response: Option<Response<Body>>,
    ) -> Response<Body> {
        let work = held.take();
        let Some(mut response) = response else {
            return self.undone(work, self.refused(Problem::Failed)).await;
        };
        let disposition = response.extensions_mut().remove::<Disposition>();
        let disposition = disposition.unwrap_or_else(|| Disposition::of(response.status(), false));
        let Work { operation: Some(operation), .. } = work else { return self.refused(Problem::NotUsed) };
        if disposition != Disposition::Commit {
            operation.abandon().await;
        } else if let Err(error) = operation.commit(&Answer::default()).await {
            return match error.kind() {
                ErrorKind::CommitUnknown => self.not_committed(&error, Problem::Unknown),
                _ if error.is_transient() => self.store_away(&error),
                _ => self.not_committed(&error, Problem::Failed),
            };
        }
        response.headers_mut().insert(STATUS, HeaderValue::from_static("ignored"));
        response
    }

    fn not_committed(&self, error: &Error, problem: Problem) -> Response<Body> {
        tracing::error!(error = error as &dyn std::error::Error, scope = self.scope, "not committed");
        self.refused(problem)
    }

    /// The answer of a request that died or panicked as often as it may.
    pub(crate) fn exhausted(&self) -> Response<Body> {
        let mut response = self.refused(Problem::Exhausted);
        response.extensions_mut().insert(Disposition::RejectKeep);
        response
    }

    pub(crate) fn store_away(&self, error: &Error) -> Response<Body> {
        tracing::error!(
            error = error as &dyn std::error::Error,
            scope = self.scope,
            "the store of keys is away"
        );
        self.refused(Problem::StoreAway)
    }

    /// Tells the caller, counts and logs why nothing ran, or nothing stayed.
    pub(crate) fn refused(&self, problem: Problem) -> Response<Body> {
        match &problem {
            Problem::Mismatch => self.count("idempotent.conflict"),
            Problem::InProgress => self.count("idempotent.in_progress"),
            Problem::StoreAway => self.count("idempotent.store_error"),
            Problem::TooManyKeys => self.count("idempotent.too_many_keys"),
            _ => {}
        }
        let code = problem.code(self.settings.wording.codes);
        let response = problem.response(self.settings.wording, Some(&self.path));
        self.say("refused", Some(response.status()), Some(code));
        response
    }

    pub(crate) fn say(
        &self,
        outcome: &'static str,
        status: Option<StatusCode>,
        error_code: Option<&'static str>,
    ) {
        let status = status.map(|status| status.as_u16());
        let Self { scope, key, payload_hash, .. } = self;
        tracing::info!(
            idempotency_key = key,
            scope,
            payload_hash,
            outcome,
            status,
            error_code,
            "idempotent request"
        );
    }

    pub(crate) fn waited(&self, wait: Duration) {
        let millis = wait.as_secs_f64() * 1000.0;
        metrics::histogram!("idempotent.wait_ms", "scope" => self.scope.clone()).record(millis);
    }

    pub(crate) fn count(&self, name: &'static str) {
        let count = |name: &'static str| metrics::counter!(name, "scope" => self.scope.clone()).increment(1);
        count(name);
        match name {
            "idempotent.replayed" if self.settings.alias_names => count("idempotent.replays"),
            "idempotent.conflict" if self.settings.alias_names => count("idempotent.conflicts"),
            _ => {}
        }
    }
}
