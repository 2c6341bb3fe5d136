//! Classifies failed requests to SQS.
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use std::error::Error;
use twinbox_core::{SourceError, SourceErrorKind as K};

/// The error codes that need a person.
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

/// Converts a failed request. `action` names it, such as "receiving from the queue".
pub(crate) fn of_request<E, R>(action: &str, error: SdkError<E, R>) -> SourceError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    let code = error.code().unwrap_or_default();
    let kind = if MISCONFIGURED.contains(&code) { K::Misconfigured } else { K::Unavailable };
    let problem = match &error {
        SdkError::ServiceError(_) if code.is_empty() => "SQS refused the request".to_owned(),
        SdkError::ServiceError(_) => format!("SQS refused the request ({code})"),
        SdkError::TimeoutError(_) => "SQS did not respond in time".to_owned(),
        SdkError::ResponseError(_) => "the response of SQS cannot be read".to_owned(),
        _ => "SQS cannot be reached".to_owned(),
    };
    SourceError::new(kind, format!("{action}: {problem}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_sqs::{error::ErrorMetadata, operation::receive_message::ReceiveMessageError};

    type Failed = SdkError<ReceiveMessageError, ()>;

    #[test]
    fn the_text_has_the_code_and_no_words_of_the_service() {
        let refused = |code: &str| {
            let meta = ErrorMetadata::builder().code(code).message("user:secret@host").build();
            of_request("receiving", Failed::service_error(ReceiveMessageError::generic(meta), ()))
        };
        for (error, kind, text) in [
            (refused("QueueDoesNotExist"), K::Misconfigured, "SQS refused the request (QueueDoesNotExist)"),
            (refused("SomethingNew"), K::Unavailable, "SQS refused the request (SomethingNew)"),
            (refused(""), K::Unavailable, "SQS refused the request"),
            (
                of_request("receiving", Failed::timeout_error("secret")),
                K::Unavailable,
                "SQS did not respond in time",
            ),
            (
                of_request("receiving", Failed::response_error("secret", ())),
                K::Unavailable,
                "the response of SQS cannot be read",
            ),
        ] {
            assert_eq!((error.kind(), error.to_string()), (kind, format!("receiving: {text}")));
            assert!(error.source().is_some());
        }
    }
}
