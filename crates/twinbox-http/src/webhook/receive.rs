//! Receives one webhook: verifies it, writes its receipt and runs the handler.
use super::{
    endpoint::Endpoint,
    signature::{Signature, SignatureHeaders, VerificationError},
};
use crate::{
    claim::Claim,
    decision::Decision,
    handler::{self, Handler},
    handover::Handover,
    metrics,
    problem::{Problem, ProblemStyle},
};
use axum::{
    body::{Body, Bytes},
    http::{Request, Response, request::Parts},
};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tracing::Instrument as _;
use twinbox_core::{crash, task_name::TaskName};
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    operation::{Operation, OperationResponse},
    webhook::{WebhookClaim, WebhookId, WebhookReceipt},
};

impl<DB: Dialect> Endpoint<DB> {
    pub(super) async fn respond(
        self: Arc<Self>,
        handler: impl Handler,
        request: Request<Body>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        // First, so that a stranger without a secret costs no memory.
        let claimed = match self.claimed(&parts) {
            Ok(claimed) => claimed,
            Err(error) => return self.refuse(error),
        };
        let body = match self.body_reader.read(body).await {
            Ok(body) => body,
            Err(problem) => return render(&problem),
        };
        let signature = match self.verifier.verify_body(claimed, &body) {
            Ok(signature) => signature,
            Err(error) => return self.refuse(error),
        };
        // A sender that disconnects drops this future. The spawned request continues.
        let receiving = self.receive(handler, parts, body, signature).in_current_span();
        tokio::spawn(TaskName::Webhook.of(receiving)).await.unwrap_or_else(|_| render(&Problem::Failed))
    }

    /// Returns what the headers claim, unless no body can make it true.
    fn claimed(&self, parts: &Parts) -> Result<SignatureHeaders, VerificationError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let values = |name: &str| parts.headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        self.verifier.verify_headers(values, now.as_secs())
    }

    fn refuse(&self, error: VerificationError) -> Response<Body> {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(provider = self.provider, error, "the signature of a webhook was refused");
        metrics::WEBHOOKS_UNVERIFIED.count_webhook(&self.provider);
        render(&Problem::WebhookUnverified)
    }

    async fn receive(
        self: Arc<Self>,
        handler: impl Handler,
        mut parts: Parts,
        body: Bytes,
        signature: Signature,
    ) -> Response<Body> {
        let id_in_body = self.find_id(&body);
        let id = match (&id_in_body, &signature.id) {
            (Some(id), _) => Some(WebhookId::Body(id)),
            (None, id) => id.as_deref().map(WebhookId::Header),
        };
        let Self { provider, name: endpoint, .. } = &*self;
        let receipt =
            WebhookReceipt { provider, endpoint, id, payload: &body, secret_index: signature.secret_index };
        let _permit = match self.store.engine().request_permit().await {
            Ok(permit) => permit,
            Err(error) => return self.store_failed(&error),
        };
        let operation =
            match self.store.receive_webhook_within(&receipt, self.retention, self.handler_timeout).await {
                Ok(WebhookClaim::Open(operation)) => operation,
                Ok(WebhookClaim::Duplicate { payload_differs: false }) => {
                    metrics::WEBHOOK_DUPLICATES.count_webhook(provider);
                    return Response::new(Body::empty());
                }
                Ok(WebhookClaim::Duplicate { payload_differs: true }) => {
                    metrics::WEBHOOK_MISMATCHES.count_webhook(provider);
                    tracing::error!(
                        provider,
                        endpoint,
                        ?id,
                        "two webhooks with the same id have different payloads"
                    );
                    return Response::new(Body::empty());
                }
                Err(error) => return self.store_failed(&error),
            };
        crash::point("webhook.after_receipt");
        let handover = Handover::new(Claim::Transaction(operation), None);
        parts.extensions.insert(handover.clone());
        parts.extensions.insert(signature);
        let deadline = handler::deadline(self.handler_timeout);
        let response = handler::run(handler, Request::from_parts(parts, Body::from(body)), deadline).await;
        crash::point("webhook.after_handler");
        self.settle(handover, response).await
    }

    /// Finds the id in the body, and reports a body without one.
    fn find_id(&self, body: &[u8]) -> Option<String> {
        let pointer = self.id_in_body.as_ref()?;
        let id = id_at(body, pointer);
        if id.is_none() {
            metrics::WEBHOOKS_WITHOUT_ID.count_webhook(&self.provider);
            tracing::warn!(
                provider = self.provider,
                endpoint = self.name,
                pointer,
                "a webhook has no id at this pointer of its body; its handler may run again for a retry"
            );
        }
        id
    }

    async fn settle(
        &self,
        handover: Handover<DB>,
        response: Result<Response<Body>, Problem>,
    ) -> Response<Body> {
        let (mut response, operation) = match (response, handover.take_transaction()) {
            (Ok(response), Some(operation)) => (response, operation),
            (response, operation) => {
                let problem = response.err().unwrap_or(Problem::Failed);
                tracing::error!(
                    provider = self.provider,
                    ?problem,
                    "the handler of a webhook did not respond, or kept its transaction"
                );
                if let Some(operation) = operation {
                    operation.abandon().await;
                }
                return render(&problem);
            }
        };
        let decision = response.extensions_mut().remove::<Decision>();
        match decision.unwrap_or_else(|| Decision::by_status(response.status(), false)) {
            Decision::Commit => self.commit(operation, response).await,
            _ => {
                operation.abandon().await;
                response
            }
        }
    }

    async fn commit(&self, operation: Operation<DB>, response: Response<Body>) -> Response<Body> {
        match operation.commit(&OperationResponse::default()).await {
            Ok(()) => {
                crash::point("webhook.after_commit");
                metrics::WEBHOOKS_RECEIVED.count_webhook(&self.provider);
                response
            }
            // If the commit succeeded, the sender's retry is a duplicate.
            Err(error) => self.store_failed(&error),
        }
    }

    fn store_failed(&self, error: &Error) -> Response<Body> {
        tracing::error!(
            error = error as &dyn std::error::Error,
            provider = self.provider,
            "a webhook was not received"
        );
        render(match error.kind() {
            ErrorKind::PartlyCommitted => &Problem::UnknownOutcome,
            _ => &Problem::StoreUnavailable,
        })
    }
}

/// Returns a string that is not empty, or an integer.
fn id_at(body: &[u8], pointer: &str) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    match body.pointer(pointer)? {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        // Other numbers may have lost digits when they were parsed.
        Value::Number(id) if id.is_u64() || id.is_i64() => Some(id.to_string()),
        _ => None,
    }
}

fn render(problem: &Problem) -> Response<Body> {
    problem.response(&ProblemStyle::default(), None)
}
