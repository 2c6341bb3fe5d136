//! Classifies failures of requests and of single events: whether the bus or the message is at fault.
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_eventbridge::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
    primitives::{DateTime, DateTimeFormat},
    types::PutEventsResultEntry,
};
use std::{
    error::Error,
    time::{Duration, SystemTime},
};
use twinbox_core::{
    PublishError,
    PublishErrorKind::{
        self, InDoubt, Misconfigured, RefusedForGood, RefusedForNow, Throttled, Unanswered, Unavailable,
        Unroutable,
    },
    destination::Receipt,
};

/// The difference of clocks at which a refused signature counts as a wrong clock. AWS tolerates 5 min; a
/// minute less leaves time for the way.
const SKEW_MAX: Duration = Duration::from_secs(4 * 60);
/// The longest wait that is accepted from a `Retry-After` header.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5 * 60);

/// The classification of a failure, without the words of the service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) kind: PublishErrorKind,
    pub(crate) code: &'static str,
    pub(crate) retry_after: Option<Duration>,
}

impl Verdict {
    pub(crate) const fn new(kind: PublishErrorKind, code: &'static str) -> Self {
        Self { kind, code, retry_after: None }
    }

    pub(crate) fn error(self) -> PublishError {
        let error = PublishError::new(self.kind, self.code);
        match self.retry_after {
            Some(wait) => error.with_retry_after(wait),
            None => error,
        }
    }
}

/// The request got no response in time.
pub(crate) const TIMED_OUT: Verdict = Verdict::new(Unanswered, "eventbridge.timeout");

/// The error codes of one event in an accepted request, with their classifications.
const ENTRY_CODES: &[(&str, PublishErrorKind, &str)] = &[
    // Other events of the request may have been accepted, so the service is not down.
    ("InternalFailure", RefusedForNow, "eventbridge.entry_internal"),
    ("InternalException", RefusedForNow, "eventbridge.entry_internal"),
    ("ServiceUnavailable", Unavailable, "eventbridge.unavailable"),
    ("ThrottlingException", Throttled, "eventbridge.throttled"),
    ("LimitExceededException", Throttled, "eventbridge.throttled"),
    ("AccessDeniedException", Misconfigured, "eventbridge.denied"),
    ("InvalidAccountIdException", Misconfigured, "eventbridge.account"),
    ("ResourceNotFoundException", Misconfigured, "eventbridge.no_bus"),
    // All messages of an outbox have one source.
    ("NotAuthorizedForSourceException", Misconfigured, "eventbridge.source_denied"),
    ("NotAuthorizedForDetailTypeException", Unroutable, "eventbridge.detail_type_denied"),
    ("InvalidArgument", RefusedForGood, "eventbridge.invalid"),
    ("ValidationException", RefusedForGood, "eventbridge.invalid"),
    ("MalformedDetail", RefusedForGood, "eventbridge.malformed_detail"),
    ("RedactionFailure", RefusedForGood, "eventbridge.redaction"),
];

/// The error codes of a refused request, with their classifications.
const REQUEST_CODES: &[(&[&str], PublishErrorKind, &str)] = &[
    (
        &[
            "BandwidthLimitExceeded",
            "EC2ThrottledException",
            "LimitExceededException",
            "PriorRequestNotComplete",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "ThrottledException",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
            "TransactionInProgressException",
        ],
        Throttled,
        "eventbridge.throttled",
    ),
    (&["ServiceUnavailable", "ServiceUnavailableException"], Unavailable, "eventbridge.unavailable"),
    (
        &["InternalException", "InternalFailure", "InternalServerError", "InternalServerException"],
        Unavailable,
        "eventbridge.internal",
    ),
    (&["RequestTimeout", "RequestTimeoutException"], Unanswered, "eventbridge.timeout"),
    // The issuer may already have issued new credentials.
    (&["ExpiredToken", "ExpiredTokenException"], Unavailable, "eventbridge.credentials_expired"),
    (
        &[
            "AuthFailure",
            "IncompleteSignature",
            "IncompleteSignatureException",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "OptInRequired",
            "UnrecognizedClientException",
        ],
        Misconfigured,
        "eventbridge.credentials",
    ),
    (&["InvalidSignatureException", "SignatureDoesNotMatch"], Misconfigured, SIGNATURE),
    (&["RequestExpired", "RequestTimeTooSkewed"], Misconfigured, CLOCK_SKEW),
    (
        &["AccessDenied", "AccessDeniedException", "NotAuthorized", "UnauthorizedOperation"],
        Misconfigured,
        "eventbridge.denied",
    ),
    (&["ResourceNotFoundException"], Misconfigured, "eventbridge.no_bus"),
    (&["OperationDisabledException"], Misconfigured, "eventbridge.disabled"),
    (&["InvalidAction", "UnknownOperationException"], Misconfigured, "eventbridge.endpoint"),
    (&["RequestEntityTooLarge", "RequestEntityTooLargeException"], RefusedForGood, "eventbridge.too_large"),
    (
        &[
            "InvalidParameterCombination",
            "InvalidParameterValue",
            "MissingParameter",
            "SerializationException",
            "ValidationError",
            "ValidationException",
        ],
        RefusedForGood,
        "eventbridge.invalid",
    ),
];

const UNREADABLE: &str = "eventbridge.unreadable_answer";
const SIGNATURE: &str = "eventbridge.signature";
const CLOCK_SKEW: &str = "eventbridge.clock_skew";

/// Returns the result of each of `sent` events of an accepted request, in order.
pub(crate) fn results_of(sent: usize, entries: &[PutEventsResultEntry]) -> Vec<Result<Receipt, Verdict>> {
    if entries.len() != sent {
        return vec![Err(Verdict::new(Unanswered, "eventbridge.answer_count")); sent];
    }
    entries.iter().map(result_of).collect()
}

fn result_of(entry: &PutEventsResultEntry) -> Result<Receipt, Verdict> {
    match (entry.error_code(), entry.event_id()) {
        (Some(code), _) => Err(of_entry(code)),
        (None, Some(id)) if !id.is_empty() => Ok(Receipt { is_duplicate: false }),
        (None, _) => Err(Verdict::new(Unanswered, "eventbridge.empty_answer")),
    }
}

fn of_entry(code: &str) -> Verdict {
    let known = ENTRY_CODES.iter().find(|(known, ..)| *known == code);
    known
        .map_or(Verdict::new(RefusedForNow, "eventbridge.entry"), |&(_, kind, code)| Verdict::new(kind, code))
}

/// Classifies a request that failed as a whole.
pub(crate) fn of_request<E>(error: &SdkError<E, HttpResponse>, now: SystemTime) -> Verdict
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::TimeoutError(_) => TIMED_OUT,
        SdkError::ConstructionFailure(_) => Verdict::new(RefusedForNow, "eventbridge.not_built"),
        SdkError::DispatchFailure(_) => of_dispatch(error),
        SdkError::ServiceError(e) => of_service(e.err().code(), e.raw(), now),
        _ => Verdict::new(Unanswered, UNREADABLE),
    }
}

fn of_dispatch(error: &(dyn Error + 'static)) -> Verdict {
    if let Some(error) = find::<CredentialsError>(error) {
        return match error {
            CredentialsError::InvalidConfiguration(_) => Verdict::new(Misconfigured, "eventbridge.profile"),
            _ => Verdict::new(Unavailable, "eventbridge.no_credentials"),
        };
    }
    match find::<hyper_util::client::legacy::Error>(error) {
        Some(error) if error.is_connect() => Verdict::new(Unavailable, "eventbridge.connect"),
        _ => Verdict::new(InDoubt, "eventbridge.disconnected"),
    }
}

fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

fn of_service(code: Option<&str>, response: &HttpResponse, now: SystemTime) -> Verdict {
    let known = REQUEST_CODES.iter().find(|(codes, ..)| code.is_some_and(|code| codes.contains(&code)));
    let (kind, mut code) = match known {
        Some(&(_, kind, code)) => (kind, code),
        None => of_status(response.status().as_u16()),
    };
    if code == SIGNATURE && is_skewed(response, now) {
        code = CLOCK_SKEW;
    }
    Verdict { kind, code, retry_after: retry_after(response, now) }
}

fn of_status(status: u16) -> (PublishErrorKind, &'static str) {
    match status {
        // A success whose body the client cannot read: the events may have been accepted.
        200..=299 => (Unanswered, UNREADABLE),
        401 | 403 => (Misconfigured, "eventbridge.denied"),
        408 => (Unanswered, "eventbridge.timeout"),
        413 => (RefusedForGood, "eventbridge.too_large"),
        429 => (Throttled, "eventbridge.throttled"),
        300..=399 | 404 | 405 => (Misconfigured, "eventbridge.endpoint"),
        502 | 504 => (InDoubt, "eventbridge.gateway"),
        503 => (Unavailable, "eventbridge.unavailable"),
        500..=599 => (Unavailable, "eventbridge.internal"),
        _ => (RefusedForNow, "eventbridge.refused"),
    }
}

fn is_skewed(response: &HttpResponse, now: SystemTime) -> bool {
    let Some(date) = response.headers().get("date").and_then(http_date) else { return false };
    date.duration_since(now).unwrap_or_else(|e| e.duration()) > SKEW_MAX
}

/// Reads the `Retry-After` header: seconds or a date.
fn retry_after(response: &HttpResponse, now: SystemTime) -> Option<Duration> {
    let text = response.headers().get("retry-after")?;
    let seconds = text.parse().map(Duration::from_secs).ok();
    let wait = seconds.or_else(|| http_date(text)?.duration_since(now).ok())?;
    Some(wait.min(RETRY_AFTER_MAX))
}

fn http_date(text: &str) -> Option<SystemTime> {
    SystemTime::try_from(DateTime::from_str(text, DateTimeFormat::HttpDate).ok()?).ok()
}

/// Classifies a failed check of the bus or its rules, which concerns no message.
pub(crate) fn of_bus_check<E>(error: &SdkError<E, HttpResponse>, now: SystemTime) -> Verdict
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let verdict = of_request(error, now);
    let kind = match verdict.kind {
        Misconfigured | RefusedForGood | Unroutable => Misconfigured,
        _ => Unavailable,
    };
    Verdict { kind, ..verdict }
}

#[cfg(test)]
mod tests;
