//! Commits or rolls back the handler's writes, and sends its response.
use crate::{
    begin::KeyedRequest, call::Call, claim::Claim, decision::Decision, handover::Handover, headers, metrics,
    problem::Problem,
};
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header, request::Parts},
};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    operation::{Operation, OperationLease, OperationResponse, OperationStart},
};

/// After a commit whose result was lost: how often the stored response is looked for, and how long between.
const LOOKUPS_MAX: u32 = 5;
const LOOKUP_INTERVAL: Duration = Duration::from_millis(200);

/// The response that a commit has stored.
enum Committed {
    ThisResponse,
    /// Another attempt was faster, and its response counts.
    OtherResponse(OperationResponse),
}

/// Why the handler's writes are rolled back. The reason decides which requests may use a leased key next.
#[derive(Clone, Copy)]
enum RollbackReason {
    /// The handler refused the request: any request may use the key.
    Refused,
    /// A temporary failure, which does not count: the same request may be repeated.
    Temporary,
    /// A failure of the service, which counts: the same request may be repeated.
    Failed,
}

impl RollbackReason {
    fn of_error(error: &Error) -> Self {
        if error.is_transient() { Self::Temporary } else { Self::Failed }
    }

    /// `None`: the decision stores the response.
    fn of_decision(decision: Decision, status: StatusCode) -> Option<Self> {
        match decision {
            Decision::Commit | Decision::RejectAndStore => None,
            Decision::Reject => Some(Self::Refused),
            Decision::Fail if status == StatusCode::SERVICE_UNAVAILABLE => Some(Self::Temporary),
            Decision::Fail => Some(Self::Failed),
        }
    }
}

impl<DB: Dialect> Call<DB> {
    /// Settles a request with a key after its handler has responded.
    ///
    /// `replay_parts` is the request, for rendering the response of another attempt. `deadline` is the
    /// handler's; its response body has to be complete by then.
    pub(crate) async fn settle(
        &self,
        request: &KeyedRequest,
        handover: Handover<DB>,
        response: Result<Response<Body>, Problem>,
        replay_parts: Option<Parts>,
        deadline: Instant,
    ) -> Response<Body> {
        let Some(claim) = handover.take() else {
            tracing::error!(
                scope = self.scope,
                "a handler kept its `IdemTx` or `IdemLease` or rolled it back, so nothing can be committed"
            );
            return self.refuse(&Problem::TransactionUnused);
        };
        if handover.has_lost_lease() {
            return self.lease_lost(request, replay_parts).await;
        }
        let is_last = claim.failures_left(self.settings.attempts_max).is_some_and(|left| left <= 1);
        // A refusal by an extractor or an inner layer is not the handler's decision.
        let stores_errors = self.settings.stores_errors && handover.is_used();
        let (decision, response) = self.judge(response, stores_errors, is_last);
        if let Some(reason) = RollbackReason::of_decision(decision, response.status()) {
            self.log_outcome("undone", response.status(), None);
            return self.roll_back(claim, reason, response).await;
        }
        if decision == Decision::Commit && !handover.is_used() {
            self.count(&metrics::UNUSED_TRANSACTIONS);
            tracing::error!(
                scope = self.scope,
                "the handler did not use an `IdemTx`, so its writes do not commit with the key: write with \
                `idem.tx()`"
            );
            if self.settings.refuses_unused {
                let refusal = self.refuse(&Problem::TransactionUnused);
                return self.roll_back(claim, RollbackReason::Failed, refusal).await;
            }
        }
        let (stored, response) = match timeout_at(deadline, self.to_stored(response, decision)).await {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => {
                tracing::error!(
                    error = &*error,
                    scope = self.scope,
                    "the body of a handler's response failed"
                );
                return self.roll_back(claim, RollbackReason::Failed, self.refuse(&Problem::Failed)).await;
            }
            Err(_) => {
                return self.roll_back(claim, RollbackReason::Failed, self.refuse(&Problem::TimedOut)).await;
            }
        };
        let (begun, lease) = self.final_transaction(request, claim, decision).await;
        let operation = match begun {
            Ok(OperationStart::Open(operation)) => operation,
            Ok(OperationStart::Completed(stored)) => return self.replay(stored, replay_parts).await,
            Ok(OperationStart::Mismatch) => return self.refuse(&Problem::Mismatch),
            Ok(OperationStart::InFlight) => return self.refuse(&Problem::InProgress),
            Ok(OperationStart::TooMany) => return self.refuse(&Problem::TooManyKeys),
            Err(error) if error.kind() == ErrorKind::LeaseLost => {
                return self.lease_lost(request, replay_parts).await;
            }
            Err(error) => {
                let refusal = self.store_failed(&error);
                return self.release(lease, RollbackReason::of_error(&error), refusal).await;
            }
        };
        match self.commit(request, operation, &stored).await {
            Ok(Committed::ThisResponse) => {}
            Ok(Committed::OtherResponse(stored)) => return self.replay(stored, replay_parts).await,
            Err((reason, refusal)) => return self.release(lease, reason, refusal).await,
        }
        self.count(&metrics::RESPONSES_STORED);
        self.log_outcome("created", response.status(), None);
        with_status(response, "stored")
    }

    /// Settles a request without a key: commits a success, and rolls anything else back.
    pub(crate) async fn settle_without_key(
        self,
        handover: Handover<DB>,
        response: Result<Response<Body>, Problem>,
    ) -> Response<Body> {
        let (decision, response) = self.decide(response, false);
        let Some(operation) = handover.take_transaction() else {
            return self.refuse(&Problem::TransactionUnused);
        };
        if decision != Decision::Commit {
            operation.abandon().await;
        } else if let Err(error) = operation.commit(&OperationResponse::default()).await {
            return match error.kind() {
                ErrorKind::CommitUnknown => self.commit_failed(&error, true),
                _ if error.is_transient() => self.store_failed(&error),
                kind => {
                    let is_ended = kind == ErrorKind::TransactionEnded;
                    self.commit_failed(&error, is_ended && !DB::CAPABILITIES.refuses_commit)
                }
            };
        }
        with_status(response, "ignored")
    }

    /// The response of a request that has used all its attempts.
    pub(crate) fn exhausted(&self) -> Response<Body> {
        self.report_exhausted();
        let mut response = Problem::Exhausted.handler_response();
        response.extensions_mut().insert(Decision::RejectAndStore);
        response
    }

    /// Decides as [`decide`](Self::decide), and turns the last failure that is allowed into a final response.
    fn judge(
        &self,
        response: Result<Response<Body>, Problem>,
        stores_errors: bool,
        is_last: bool,
    ) -> (Decision, Response<Body>) {
        let (decision, response) = self.decide(response, stores_errors);
        let is_temporary = response.status() == StatusCode::SERVICE_UNAVAILABLE;
        if decision == Decision::Fail && is_last && !is_temporary {
            return self.decide(Ok(self.exhausted()), true);
        }
        (decision, response)
    }

    /// Returns a response and its decision. The response is the handler's, or a problem response if the
    /// handler failed.
    fn decide(
        &self,
        response: Result<Response<Body>, Problem>,
        stores_errors: bool,
    ) -> (Decision, Response<Body>) {
        if matches!(response, Err(Problem::TimedOut)) {
            self.report_timeout();
        }
        let mut response = response.unwrap_or_else(Problem::handler_response);
        if let Some(problem) = response.extensions_mut().remove::<Problem>()
            // A body that an inner layer has compressed stays as it is.
            && !response.headers().contains_key(header::CONTENT_ENCODING)
        {
            let (parts, body) = self.render(&problem).into_parts();
            *response.body_mut() = body;
            response.headers_mut().remove(header::CONTENT_LENGTH);
            if let Some(link) = parts.headers.get(header::LINK) {
                response.headers_mut().append(header::LINK, link.clone());
            }
        }
        let decision = response.extensions_mut().remove::<Decision>();
        (decision.unwrap_or_else(|| Decision::by_status(response.status(), stores_errors)), response)
    }

    /// Returns the transaction that stores the response, and the lease, if the key has one.
    ///
    /// It is the handler's transaction. If the handler has none, or its writes are rejected, a new one is
    /// begun.
    async fn final_transaction(
        &self,
        request: &KeyedRequest,
        claim: Claim<DB>,
        decision: Decision,
    ) -> (Result<OperationStart<Operation<DB>>, Error>, Option<OperationLease<DB>>) {
        let lease = match claim {
            Claim::Transaction(operation) if decision == Decision::Commit => {
                return (Ok(OperationStart::Open(operation)), None);
            }
            Claim::LeaseAndTransaction(lease, operation) if decision == Decision::Commit => {
                return (Ok(OperationStart::Open(operation)), Some(lease));
            }
            claim => claim.roll_back().await,
        };
        let begun = match &lease {
            Some(lease) => lease.begin().await.map(OperationStart::Open),
            // The rollback freed the key. If another request was faster, its response counts.
            None => self.settings.claim_in_transaction(request, self.settings.policy.wait).await,
        };
        (begun, lease)
    }

    /// # Errors
    /// Nothing is stored, or it is unknown: the reason to release the lease, and the response for the caller.
    async fn commit(
        &self,
        request: &KeyedRequest,
        operation: Operation<DB>,
        response: &OperationResponse,
    ) -> Result<Committed, (RollbackReason, Response<Body>)> {
        crash::point("request.before_commit");
        match operation.commit(response).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::CommitUnknown => match self.look_up(request).await {
                Some(stored) if stored == *response => {}
                Some(stored) => return Ok(Committed::OtherResponse(stored)),
                None => return Err((RollbackReason::Temporary, self.store_failed(&error))),
            },
            Err(error) if error.is_transient() => {
                return Err((RollbackReason::Temporary, self.store_failed(&error)));
            }
            Err(error) => {
                let found = self.settings.find(request).await;
                let is_partly_written = found.is_err_and(|error| error.kind() == ErrorKind::PartlyCommitted);
                return Err((RollbackReason::Failed, self.commit_failed(&error, is_partly_written)));
            }
        }
        crash::point("request.after_commit");
        Ok(Committed::ThisResponse)
    }

    async fn look_up(&self, request: &KeyedRequest) -> Option<OperationResponse> {
        for _ in 0..LOOKUPS_MAX {
            if let Ok(Some(stored)) = self.settings.find(request).await {
                return Some(stored);
            }
            sleep(LOOKUP_INTERVAL).await;
        }
        None
    }

    /// Sends the response of the attempt that has the key now, or refuses while that attempt runs.
    async fn lease_lost(&self, request: &KeyedRequest, replay_parts: Option<Parts>) -> Response<Body> {
        self.count(&metrics::LEASES_LOST);
        match self.settings.find(request).await {
            Ok(Some(stored)) => self.replay(stored, replay_parts).await,
            Ok(None) => self.refuse(&Problem::InProgress),
            Err(error) => self.store_failed(&error),
        }
    }

    async fn roll_back(
        &self,
        claim: Claim<DB>,
        reason: RollbackReason,
        response: Response<Body>,
    ) -> Response<Body> {
        let lease = claim.roll_back().await;
        self.release(lease, reason, response).await
    }

    async fn release(
        &self,
        lease: Option<OperationLease<DB>>,
        reason: RollbackReason,
        response: Response<Body>,
    ) -> Response<Body> {
        let Some(lease) = lease else { return response };
        let released = match reason {
            RollbackReason::Refused => lease.forget().await,
            RollbackReason::Temporary => lease.postpone().await,
            RollbackReason::Failed => lease.release().await,
        };
        if let Err(error) = released {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                scope = self.scope,
                "a key could not be released and is held until its lease ends"
            );
        }
        response
    }
}

fn with_status(mut response: Response<Body>, status: &'static str) -> Response<Body> {
    response.headers_mut().insert(headers::STATUS, HeaderValue::from_static(status));
    response
}
