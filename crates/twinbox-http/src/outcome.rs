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
    http::{HeaderName, HeaderValue, Response, StatusCode, header, request::Parts},
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};
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

/// Why nothing stays of what a handler wrote.
#[derive(Clone, Copy)]
enum Why {
    /// The caller's fault: any request may use the key.
    Refused,
    /// Nobody's fault, and it counts as no failure: the same request may be tried again.
    Passing,
    /// The service's fault: the same request may be tried again.
    Failed,
}

impl Why {
    fn of(error: &Error) -> Self {
        if error.is_transient() { Self::Passing } else { Self::Failed }
    }
}

/// One request.
pub(crate) struct Call<DB: Dialect> {
    pub(crate) settings: Arc<Settings<DB>>,
    path: String,
    pub(crate) scope: String,
    /// As logs have them.
    pub(crate) key: String,
    pub(crate) payload_hash: String,
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
        response: Result<Response<Body>, Problem>,
        again: Option<Parts>,
        ends_at: Instant,
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
        let is_last = work.failures_left(self.settings.attempts_max).is_some_and(|left| left <= 1);
        // An extractor that refuses decides nothing, nor does a layer in between: it may be right the next time.
        let errors_kept = self.settings.errors_kept && held.is_touched();
        let (disposition, response) = self.judge(response, errors_kept, is_last);
        let why = match disposition {
            Disposition::Reject => Some(Why::Refused),
            Disposition::Fault if response.status() == StatusCode::SERVICE_UNAVAILABLE => Some(Why::Passing),
            Disposition::Fault => Some(Why::Failed),
            _ => None,
        };
        if let Some(why) = why {
            self.say("undone", Some(response.status()), None);
            return self.undone(work, why, response).await;
        }
        if disposition == Disposition::Commit && !held.is_used() {
            metrics::counter!("idempotent.unused", "scope" => self.scope.clone()).increment(1);
            tracing::error!(
                scope = self.scope,
                "the handler takes no `IdemTx`, so nothing that it writes commits with its key: add one to its arguments"
            );
            if self.settings.unused_refused {
                return self.undone(work, Why::Failed, self.refused(Problem::NotUsed)).await;
            }
        }
        let (answer, response) = match timeout_at(ends_at, self.as_answer(response, disposition)).await {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => {
                tracing::error!(error = &*error, scope = self.scope, "the handler's answer broke off");
                return self.undone(work, Why::Failed, self.refused(Problem::Failed)).await;
            }
            Err(_) => return self.undone(work, Why::Failed, self.refused(Problem::TimedOut)).await,
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
                let (work, why) = (Work { operation: None, lease }, Why::of(&error));
                return self.undone(work, why, self.store_failed(&error)).await;
            }
        };
        match self.commit(key, asked, operation, &answer).await {
            Ok(Wrote::Now) => {}
            Ok(Wrote::Before(stored)) => return self.replay(stored, again).await,
            Err((why, response)) => return self.undone(Work { operation: None, lease }, why, response).await,
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
            Err(error) => self.store_failed(&error),
        }
    }

    /// An error: what becomes of a lease, and what the caller is told.
    async fn commit(
        &self,
        key: &OperationKey,
        asked: &Asked,
        operation: Operation<DB>,
        answer: &Answer,
    ) -> Result<Wrote, (Why, Response<Body>)> {
        crash::point("request.before_commit");
        match operation.commit(answer).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::CommitUnknown => {
                match self.ask_again(key, asked).await {
                    Some(stored) if stored == *answer => {}
                    Some(stored) => return Ok(Wrote::Before(stored)),
                    None => return Err((Why::Passing, self.store_failed(&error))),
                }
            }
            Err(error) if error.is_transient() => return Err((Why::Passing, self.store_failed(&error))),
            Err(error) => return Err((Why::Failed, self.not_committed(&error, Problem::Failed))),
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

    async fn undone(
        &self,
        Work { operation, lease }: Work<DB>,
        why: Why,
        response: Response<Body>,
    ) -> Response<Body> {
        if let Some(operation) = operation {
            operation.abandon().await;
        }
        let Some(lease) = lease else { return response };
        let let_go = match why {
            Why::Refused => lease.forget().await,
            Why::Passing => lease.postpone().await,
            Why::Failed => lease.release().await,
        };
        if let Err(error) = let_go {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, scope = self.scope, "a key is held until its lease ends");
        }
        response
    }

    /// What becomes of what a handler wrote, and what the caller is told.
    fn judge(
        &self,
        response: Result<Response<Body>, Problem>,
        errors_kept: bool,
        is_last: bool,
    ) -> (Disposition, Response<Body>) {
        let (disposition, response) = self.told(response, errors_kept);
        let passes = response.status() == StatusCode::SERVICE_UNAVAILABLE;
        if disposition == Disposition::Fault && is_last && !passes {
            return self.told(Ok(self.exhausted()), true);
        }
        (disposition, response)
    }

    /// What the handler said, or why it did not, in the words of the route.
    fn told(
        &self,
        response: Result<Response<Body>, Problem>,
        errors_kept: bool,
    ) -> (Disposition, Response<Body>) {
        if matches!(response, Err(Problem::TimedOut)) {
            self.took_too_long();
        }
        let mut response = response.unwrap_or_else(Problem::into_response);
        if let Some(problem) = response.extensions_mut().remove::<Problem>()
            && !response.headers().contains_key(header::CONTENT_ENCODING)
        {
            let (words, body) = problem.response(&self.settings.wording, Some(&self.path)).into_parts();
            *response.body_mut() = body;
            response.headers_mut().remove(header::CONTENT_LENGTH);
            if let Some(link) = words.headers.get(header::LINK) {
                response.headers_mut().append(header::LINK, link.clone());
            }
        }
        let disposition = response.extensions_mut().remove::<Disposition>();
        (disposition.unwrap_or_else(|| Disposition::of(response.status(), errors_kept)), response)
    }

    pub(crate) async fn settle_without_key(
        self,
        held: Held<DB>,
        response: Result<Response<Body>, Problem>,
    ) -> Response<Body> {
        let (disposition, mut response) = self.told(response, false);
        let Work { operation: Some(operation), .. } = held.take() else {
            return self.refused(Problem::NotUsed);
        };
        if disposition != Disposition::Commit {
            operation.abandon().await;
        } else if let Err(error) = operation.commit(&Answer::default()).await {
            return match error.kind() {
                ErrorKind::CommitUnknown => self.not_committed(&error, Problem::Unknown),
                _ if error.is_transient() => self.store_failed(&error),
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

    /// The answer of a request that has failed or died as often as it may.
    pub(crate) fn exhausted(&self) -> Response<Body> {
        let Self { scope, key, .. } = self;
        self.count("idempotent.exhausted");
        tracing::error!(
            scope,
            idempotency_key = key,
            "a request has failed as often as it may, and is not tried again: see how far it has come"
        );
        let mut response = Problem::Exhausted.into_response();
        response.extensions_mut().insert(Disposition::RejectKeep);
        response
    }

    pub(crate) fn store_failed(&self, error: &Error) -> Response<Body> {
        let is_setup = matches!(error.kind(), ErrorKind::Configuration | ErrorKind::Codec);
        let error = error as &dyn std::error::Error;
        tracing::error!(error, scope = self.scope, "the store of keys is away, or refused");
        self.refused(if is_setup { Problem::Misconfigured } else { Problem::StoreAway })
    }

    /// Tells the caller, counts and logs why nothing ran, or nothing stayed.
    pub(crate) fn refused(&self, problem: Problem) -> Response<Body> {
        match &problem {
            Problem::Mismatch => self.count("idempotent.conflict"),
            Problem::InProgress => self.count("idempotent.in_progress"),
            Problem::StoreAway => self.count("idempotent.store_error"),
            Problem::TooManyKeys => self.count("idempotent.too_many_keys"),
            Problem::TimedOut => self.took_too_long(),
            _ => {}
        }
        let code = problem.code(self.settings.wording.codes);
        let response = problem.response(&self.settings.wording, Some(&self.path));
        self.say("refused", Some(response.status()), Some(code));
        response
    }
}
