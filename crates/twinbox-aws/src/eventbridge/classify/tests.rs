use super::*;
use aws_sdk_eventbridge::{
    error::{ConnectorError, ErrorMetadata},
    operation::put_events::PutEventsError,
};

type Failed = SdkError<PutEventsError, HttpResponse>;

/// 2026-09-10T00:00:00Z
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_788_998_400)
}

fn response(status: u16, headers: &[(&'static str, &'static str)]) -> HttpResponse {
    let mut response = HttpResponse::new(status.try_into().unwrap(), "secret".into());
    for (name, value) in headers {
        response.headers_mut().insert(*name, *value);
    }
    response
}

fn refused_with(status: u16, code: Option<&str>, headers: &[(&'static str, &'static str)]) -> Verdict {
    let mut meta = ErrorMetadata::builder().message("user:secret@host");
    if let Some(code) = code {
        meta = meta.code(code);
    }
    let error = Failed::service_error(PutEventsError::generic(meta.build()), response(status, headers));
    of_request(&error, now())
}

#[track_caller]
fn classified_as(verdict: Verdict, kind: PublishErrorKind, code: &str) {
    assert_eq!((verdict.kind, verdict.code), (kind, code));
    let error = verdict.error();
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[test]
fn codes_of_one_event_are_classified() {
    // The codes that the SDK lists, and others that were observed.
    let table = [
        ("InternalFailure", RefusedForNow),
        ("ThrottlingException", Throttled),
        ("AccessDeniedException", Misconfigured),
        ("InvalidAccountIdException", Misconfigured),
        ("InvalidArgument", RefusedForGood),
        ("MalformedDetail", RefusedForGood),
        ("RedactionFailure", RefusedForGood),
        ("NotAuthorizedForSourceException", Misconfigured),
        ("NotAuthorizedForDetailTypeException", Unroutable),
        ("InternalException", RefusedForNow),
        ("ServiceUnavailable", Unavailable),
        ("LimitExceededException", Throttled),
        ("ResourceNotFoundException", Misconfigured),
        ("ValidationException", RefusedForGood),
        ("SomethingNewException", RefusedForNow),
        ("", RefusedForNow),
    ];
    for (code, kind) in table {
        let result = PutEventsResultEntry::builder().error_code(code).error_message("secret").build();
        let results = results_of(1, &[result]);
        assert_eq!(results[0].unwrap_err().kind, kind, "{code}");
    }
    assert!(ENTRY_CODES.iter().all(|(code, kind, _)| table.contains(&(*code, *kind))));
}

#[test]
fn a_malformed_response_confirms_nothing() {
    let taken = || PutEventsResultEntry::builder().event_id("1").build();
    let empty = || PutEventsResultEntry::builder().build();
    let both = PutEventsResultEntry::builder().event_id("1").error_code("MalformedDetail").build();
    let nameless = PutEventsResultEntry::builder().event_id("").build();
    let kinds = |sent, results: &[_]| -> Vec<_> {
        results_of(sent, results).into_iter().map(|result| result.err().map(|v| v.kind)).collect()
    };
    assert_eq!(kinds(2, &[taken(), empty()]), [None, Some(Unanswered)]);
    assert_eq!(kinds(2, &[both, nameless]), [Some(RefusedForGood), Some(Unanswered)]);
    for wrong in [vec![], vec![taken()], vec![taken(), taken(), taken()]] {
        assert_eq!(kinds(2, &wrong), [Some(Unanswered); 2]);
    }
}

#[test]
fn codes_of_a_request_are_classified() {
    let table = [
        (400, "ThrottlingException", Throttled, "eventbridge.throttled"),
        (400, "TooManyRequestsException", Throttled, "eventbridge.throttled"),
        (503, "SlowDown", Throttled, "eventbridge.throttled"),
        (503, "ServiceUnavailable", Unavailable, "eventbridge.unavailable"),
        (500, "InternalException", Unavailable, "eventbridge.internal"),
        (500, "InternalFailure", Unavailable, "eventbridge.internal"),
        (400, "RequestTimeout", Unanswered, "eventbridge.timeout"),
        (400, "ExpiredTokenException", Unavailable, "eventbridge.credentials_expired"),
        (400, "AccessDeniedException", Misconfigured, "eventbridge.denied"),
        (400, "UnrecognizedClientException", Misconfigured, "eventbridge.credentials"),
        (403, "InvalidClientTokenId", Misconfigured, "eventbridge.credentials"),
        (403, "MissingAuthenticationToken", Misconfigured, "eventbridge.credentials"),
        (400, "IncompleteSignature", Misconfigured, "eventbridge.credentials"),
        (403, "SignatureDoesNotMatch", Misconfigured, "eventbridge.signature"),
        (400, "InvalidSignatureException", Misconfigured, "eventbridge.signature"),
        (403, "RequestTimeTooSkewed", Misconfigured, "eventbridge.clock_skew"),
        (400, "RequestExpired", Misconfigured, "eventbridge.clock_skew"),
        (400, "ResourceNotFoundException", Misconfigured, "eventbridge.no_bus"),
        (400, "OperationDisabledException", Misconfigured, "eventbridge.disabled"),
        (400, "UnknownOperationException", Misconfigured, "eventbridge.endpoint"),
        (413, "RequestEntityTooLarge", RefusedForGood, "eventbridge.too_large"),
        (400, "ValidationException", RefusedForGood, "eventbridge.invalid"),
        (400, "SerializationException", RefusedForGood, "eventbridge.invalid"),
        (400, "SomethingNewException", RefusedForNow, "eventbridge.refused"),
        (500, "SomethingNewException", Unavailable, "eventbridge.internal"),
    ];
    for (status, vendor, kind, code) in table {
        classified_as(refused_with(status, Some(vendor), &[]), kind, code);
    }
    let codes: Vec<_> = REQUEST_CODES.iter().flat_map(|(codes, ..)| *codes).collect();
    assert!(codes.iter().enumerate().all(|(at, code)| !codes[..at].contains(code)), "each code once");
}

#[test]
fn a_status_without_a_code_is_classified() {
    let table = [
        (200, Unanswered, "eventbridge.unreadable_answer"),
        (302, Misconfigured, "eventbridge.endpoint"),
        (400, RefusedForNow, "eventbridge.refused"),
        (401, Misconfigured, "eventbridge.denied"),
        (403, Misconfigured, "eventbridge.denied"),
        (404, Misconfigured, "eventbridge.endpoint"),
        (408, Unanswered, "eventbridge.timeout"),
        (413, RefusedForGood, "eventbridge.too_large"),
        (429, Throttled, "eventbridge.throttled"),
        (500, Unavailable, "eventbridge.internal"),
        (502, InDoubt, "eventbridge.gateway"),
        (503, Unavailable, "eventbridge.unavailable"),
        (504, InDoubt, "eventbridge.gateway"),
        (599, Unavailable, "eventbridge.internal"),
    ];
    for (status, kind, code) in table {
        classified_as(refused_with(status, None, &[]), kind, code);
    }
}

#[test]
fn the_wait_is_the_requested_one_within_a_limit() {
    let wait = |text| refused_with(429, None, &[("retry-after", text)]).retry_after;
    assert_eq!(refused_with(429, None, &[]).retry_after, None);
    assert_eq!(wait("7"), Some(Duration::from_secs(7)));
    assert_eq!(wait("99999999999999"), Some(RETRY_AFTER_MAX));
    assert_eq!(wait("Thu, 10 Sep 2026 00:00:09 GMT"), Some(Duration::from_secs(9)));
    assert_eq!(wait("Wed, 09 Sep 2026 00:00:00 GMT"), None);
    assert_eq!(wait("soon"), None);
    let error = refused_with(503, None, &[("retry-after", "7")]).error();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

#[test]
fn a_refused_signature_and_another_time_mean_a_wrong_clock() {
    let code = |date| refused_with(403, Some("SignatureDoesNotMatch"), &[("date", date)]).code;
    assert_eq!(code("Thu, 10 Sep 2026 00:03:00 GMT"), SIGNATURE);
    assert_eq!(code("Thu, 10 Sep 2026 00:05:00 GMT"), CLOCK_SKEW);
    assert_eq!(code("Wed, 09 Sep 2026 23:55:00 GMT"), CLOCK_SKEW);
    assert_eq!(code("whenever"), SIGNATURE);
}

#[test]
fn client_errors_are_classified() {
    let of = |error: Failed| of_request(&error, now());
    classified_as(of(Failed::timeout_error("secret")), Unanswered, "eventbridge.timeout");
    classified_as(of(Failed::construction_failure("secret")), RefusedForNow, "eventbridge.not_built");
    let unread = Failed::response_error("secret", response(200, &[]));
    classified_as(of(unread), Unanswered, "eventbridge.unreadable_answer");
    let dispatch = |source: Box<dyn Error + Send + Sync>| {
        of(Failed::dispatch_failure(ConnectorError::other(source, None)))
    };
    classified_as(dispatch("secret".into()), InDoubt, "eventbridge.disconnected");
    let missing = CredentialsError::not_loaded("secret");
    classified_as(dispatch(missing.into()), Unavailable, "eventbridge.no_credentials");
    let slow = CredentialsError::provider_timed_out(Duration::from_secs(1));
    classified_as(dispatch(slow.into()), Unavailable, "eventbridge.no_credentials");
    let wrong = CredentialsError::invalid_configuration("secret");
    classified_as(dispatch(wrong.into()), Misconfigured, "eventbridge.profile");
    let cut = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let cut = Failed::dispatch_failure(ConnectorError::io(cut.into()));
    classified_as(of(cut), InDoubt, "eventbridge.disconnected");
}

#[test]
fn a_check_of_the_bus_concerns_no_message() {
    let of = |error: Failed| of_bus_check(&error, now());
    classified_as(of(Failed::timeout_error("secret")), Unavailable, "eventbridge.timeout");
    let coded = |status, code| {
        let meta = ErrorMetadata::builder().code(code).build();
        of(Failed::service_error(PutEventsError::generic(meta), response(status, &[("retry-after", "3")])))
    };
    classified_as(coded(400, "ResourceNotFoundException"), Misconfigured, "eventbridge.no_bus");
    classified_as(coded(400, "ValidationException"), Misconfigured, "eventbridge.invalid");
    classified_as(coded(400, "SomethingNew"), Unavailable, "eventbridge.refused");
    classified_as(coded(400, "ThrottlingException"), Unavailable, "eventbridge.throttled");
    assert_eq!(coded(429, "ThrottlingException").retry_after, Some(Duration::from_secs(3)));
}
