//! What a failed request says about the queue.
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use std::error::Error;
use twinbox_core::{SourceError, SourceErrorKind as K};

/// Codes that somebody has to do something about.
const MISCONFIGURED: &[&str] = &[
    "AWS.SimpleQueueService.NonExistentQueue",
    "AccessDenied",
    "AccessDeniedException",
    "InvalidAddress",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSignatureException",
    "NonExistentQueue",
    "OptInRequired",
    "QueueDoesNotExist",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// `what` was tried.
pub(crate) fn of_request<E, R>(what: &str, error: SdkError<E, R>) -> SourceError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    let code = error.code().unwrap_or_default();
    let kind = if MISCONFIGURED.contains(&code) { K::Misconfigured } else { K::Unavailable };
    SourceError::new(kind, format!("{what}: {}", DisplayErrorContext(&error))).with_source(error)
}
