//! Reads the key of a request, claims it, and finds the response that it has.
use crate::{caller::Caller, claim::Claim, problem::Problem, request::BufferedRequest, settings::Settings};
use axum::{
    extract::MatchedPath,
    http::{HeaderMap, request::Parts},
};
use std::time::Duration;
use twinbox_sql::{
    Dialect, Error,
    operation::{Operation, OperationKey, OperationPolicy, OperationResponse, OperationStart, RequestDigest},
};

const KEY: &str = "idempotency-key";

/// A request with its key.
pub(crate) struct KeyedRequest {
    pub(crate) key: OperationKey,
    pub(crate) content: BufferedRequest,
    pub(crate) digest: RequestDigest,
    /// The fingerprint by the route's algorithm.
    pub(crate) fingerprint: [u8; 32],
}

impl<DB: Dialect> Settings<DB> {
    /// Returns the scope of the request's key. `None` without a setting and without a route.
    pub(crate) fn scope_of(&self, parts: &Parts) -> Option<String> {
        let of_route = || {
            let route = parts.extensions.get::<MatchedPath>()?;
            Some(format!("{}_{}", parts.method, route.as_str()))
        };
        self.scope.clone().or_else(of_route)
    }

    pub(crate) fn parse_key(&self, headers: &HeaderMap) -> Result<Option<String>, Problem> {
        let values = Vec::from_iter(headers.get_all(KEY).iter().map(|value| value.as_bytes()));
        match values[..] {
            [] if self.requires_key || self.lease.is_some() => Err(Problem::MissingKey),
            [] => Ok(None),
            _ => {
                let key = self.key_syntax.parse(&values);
                key.map(Some).map_err(|error| Problem::InvalidKey(error.into_reason()))
            }
        }
    }

    pub(crate) async fn keyed(
        &self,
        parts: &Parts,
        scope: String,
        key: String,
        content: BufferedRequest,
    ) -> KeyedRequest {
        let Caller { tenant, principal } = (self.caller)(parts);
        let key = OperationKey { tenant, principal, is_shared: self.is_shared_by_tenant, scope, key };
        let digest = content.digest(&self.excluded);
        let fingerprint = *digest.fingerprint(content.algorithm(self.policy.algorithm)).await.digest();
        KeyedRequest { key, content, digest, fingerprint }
    }

    /// Claims the key, and waits up to `wait` for a process that holds it.
    ///
    /// A request waits only with a permit: the waiters of one key must not use up the connections of other
    /// routes.
    pub(crate) async fn claim(
        &self,
        request: &KeyedRequest,
        wait: Duration,
    ) -> Result<OperationStart<Claim<DB>>, Error> {
        match self.try_claim(request, Duration::ZERO).await? {
            OperationStart::InFlight if !wait.is_zero() => {}
            begun => return Ok(begun),
        }
        let Ok(_permit) = self.wait_permits.try_acquire() else { return Ok(OperationStart::InFlight) };
        self.try_claim(request, wait).await
    }

    async fn try_claim(
        &self,
        request: &KeyedRequest,
        wait: Duration,
    ) -> Result<OperationStart<Claim<DB>>, Error> {
        let Some(lease) = self.lease else {
            return Ok(self.claim_in_transaction(request, wait).await?.map(Claim::Transaction));
        };
        let (keys, policy) = (self.store.idempotency_keys(), self.policy_for(request, wait));
        let begun = keys.lease(&request.key, &request.digest, &policy, lease).await?;
        Ok(begun.map(Claim::Lease))
    }

    /// Claims the key by an open transaction.
    pub(crate) async fn claim_in_transaction(
        &self,
        request: &KeyedRequest,
        wait: Duration,
    ) -> Result<OperationStart<Operation<DB>>, Error> {
        let (keys, policy) = (self.store.idempotency_keys(), self.policy_for(request, wait));
        keys.begin(&request.key, &request.digest, &policy).await
    }

    fn policy_for(&self, request: &KeyedRequest, wait: Duration) -> OperationPolicy {
        let algorithm = request.content.algorithm(self.policy.algorithm);
        OperationPolicy { wait, algorithm, ..self.policy }
    }

    /// Finds the stored response of the request.
    pub(crate) async fn find(&self, request: &KeyedRequest) -> Result<Option<OperationResponse>, Error> {
        self.store.idempotency_keys().find(&request.key, &request.digest).await
    }
}
