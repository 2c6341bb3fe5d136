use super::*;
use crate::webhook::{secret::MACS, signature::SIGNATURES_MAX};
use proptest::prelude::*;

/// The published vector of Standard Webhooks, as its libraries test it.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const AT: u64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn verifier(secrets: &[&str]) -> Verifier {
    Verifier::new(Scheme::Standard, secrets.iter().map(|secret| Secret::from_base64(secret).unwrap()))
}

fn verify(
    verifier: &Verifier,
    headers: &[(&str, &str)],
    body: &[u8],
    now: u64,
) -> Result<Signature, VerificationError> {
    let values = |name: &str| headers.iter().filter(|(n, _)| *n == name).map(|(_, v)| v.as_bytes()).collect();
    verifier.verify(values, body, now)
}

fn headers<'a>(id: &'a str, at: &'a str, signature: &'a str) -> [(&'a str, &'a str); 3] {
    [("webhook-id", id), ("webhook-timestamp", at), ("webhook-signature", signature)]
}

/// t28
#[test]
fn only_the_published_vector_is_verified() {
    let (one, at) = (verifier(&[SECRET]), AT.to_string());
    let verified = verify(&one, &headers(ID, &at, SIGNATURE), BODY, AT).unwrap();
    assert_eq!(verified, Signature { id: Some(ID.to_owned()), signed_at_s: AT, secret_index: 0 });
    use VerificationError::{Malformed, WrongSignature};
    for (id, at, signature, body, why) in [
        (ID, &*at, SIGNATURE, &b"{}"[..], WrongSignature),
        ("msg_other", &at, SIGNATURE, BODY, WrongSignature),
        (ID, "1614265331", SIGNATURE, BODY, WrongSignature),
        (ID, &at, "", BODY, WrongSignature),
        (ID, &at, "v1,", BODY, WrongSignature),
        (ID, &at, "v1,g0hM9SsE", BODY, WrongSignature),
        (ID, &at, &SIGNATURE[..SIGNATURE.len() - 4], BODY, WrongSignature),
        (ID, &at, "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY, WrongSignature),
        (ID, &at, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", BODY, WrongSignature),
        ("", &at, SIGNATURE, BODY, Malformed),
        ("a.1", &at, SIGNATURE, BODY, Malformed),
        ("a b", &at, SIGNATURE, BODY, Malformed),
        (ID, "01614265330", SIGNATURE, BODY, Malformed),
        (ID, "+1614265330", SIGNATURE, BODY, Malformed),
        (ID, "-1", SIGNATURE, BODY, Malformed),
        (ID, "1e9", SIGNATURE, BODY, Malformed),
        (ID, "99999999999999999999", SIGNATURE, BODY, Malformed),
    ] {
        assert_eq!(verify(&one, &headers(id, at, signature), body, AT), Err(why), "{id} {at} {signature}");
    }
}

#[test]
fn a_missing_or_repeated_header_is_refused() {
    let (one, at) = (verifier(&[SECRET]), AT.to_string());
    let all = headers(ID, &at, SIGNATURE);
    for n in 0..all.len() {
        let without =
            Vec::from_iter(all.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, header)| *header));
        assert_eq!(verify(&one, &without, BODY, AT), Err(VerificationError::Malformed));
        let twice = Vec::from_iter(all.iter().chain([&all[n]]).copied());
        assert_eq!(verify(&one, &twice, BODY, AT), Err(VerificationError::Malformed));
    }
}

#[test]
fn a_time_too_far_in_the_past_or_future_is_refused() {
    let (one, at) = (verifier(&[SECRET]), AT.to_string());
    let at_time = |now| verify(&one, &headers(ID, &at, SIGNATURE), BODY, now).map(|_| ());
    assert_eq!([at_time(AT - 300), at_time(AT + 300)], [Ok(()); 2]);
    assert_eq!([at_time(AT - 301), at_time(AT + 301)], [Err(VerificationError::OutOfTime); 2]);
    let wider = one.clone().tolerance(Duration::from_secs(3600));
    assert!(verify(&wider, &headers(ID, &at, SIGNATURE), BODY, AT + 3600).is_ok());
}

/// A body may have 1 MiB, and the sender chooses how many signatures there are.
#[test]
fn a_body_is_digested_once_for_each_secret_and_never_out_of_time() {
    let two = verifier(&["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", SECRET]);
    let (at, many) = (AT.to_string(), "v1,AAAA ".repeat(SIGNATURES_MAX - 1) + SIGNATURE);
    let digested = |now| {
        let before = MACS.get();
        let verified =
            verify(&two, &headers(ID, &at, &many), BODY, now).map(|signature| signature.secret_index);
        (verified, MACS.get() - before)
    };
    assert_eq!(digested(AT), (Ok(1), 2));
    assert_eq!(digested(AT + 301), (Err(VerificationError::OutOfTime), 0));
}

#[test]
fn each_of_several_secrets_matches_and_a_removed_one_does_not() {
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let at = AT.to_string();
    let found = |secrets: &[&str], signature: &str| {
        verify(&verifier(secrets), &headers(ID, &at, signature), BODY, AT)
            .map(|signature| signature.secret_index)
    };
    assert_eq!(found(&[other, SECRET], SIGNATURE), Ok(1));
    let several = format!("v1a,AAAA v1,AAAA v1,not-base64 {SIGNATURE}");
    assert_eq!(found(&[SECRET, other], &several), Ok(0));
    assert_eq!(found(&[other], SIGNATURE), Err(VerificationError::WrongSignature));
    let many = format!("{}{SIGNATURE}", "v1,AAAA ".repeat(SIGNATURES_MAX));
    assert_eq!(found(&[SECRET], &many), Err(VerificationError::WrongSignature));
}

/// The body is not UTF-8. The signature is by another implementation, Python's `hmac`.
#[test]
fn stripe_signs_any_bytes() {
    let stripe =
        Verifier::new(Scheme::Stripe, [Secret::from_bytes("whsec_0123456789abcdef0123456789").unwrap()]);
    let signature = STRIPE_SIGNATURE;
    let verify =
        |header: &str| verify(&stripe, &[("stripe-signature", header)], b"{\"id\":\"evt_1\xff\"}", AT);
    let verified = Signature { id: None, signed_at_s: AT, secret_index: 0 };
    assert_eq!(verify(&format!("t={AT},v1={signature}")), Ok(verified.clone()));
    assert_eq!(verify(&format!("t={AT},v0=00,v1=00,v1={signature},x=y")), Ok(verified));
    for (header, why) in [
        (format!("t={AT},v0={signature}"), VerificationError::WrongSignature),
        (format!("t={},v1={signature}", AT + 1), VerificationError::WrongSignature),
        (format!("t={AT},v1={}", &signature[1..]), VerificationError::WrongSignature),
        (format!("t={AT},v1="), VerificationError::WrongSignature),
        (format!("t={AT},t={AT},v1={signature}"), VerificationError::Malformed),
        (format!("v1={signature}"), VerificationError::Malformed),
        ("garbage".to_owned(), VerificationError::Malformed),
    ] {
        assert_eq!(verify(&header), Err(why), "{header}");
    }
}

const STRIPE_SIGNATURE: &str = "f51d37bac1dcd669bc91e1061b38ea0177bd9f20942c996136a0873add6a53f0";

#[test]
fn short_secrets_are_refused_and_none_is_printed() {
    for refused in ["", "whsec_", "whsec_AAAA", "whsec_!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"] {
        assert!(Secret::from_base64(refused).is_err(), "{refused}");
    }
    assert!(Secret::from_bytes([0; 23]).is_err() && Secret::from_bytes([0; 65]).is_err());
    assert!(Secret::from_bytes([0; 24]).is_ok() && Secret::from_bytes([0; 64]).is_ok());
    assert!(!format!("{:?}", verifier(&[SECRET])).contains("MfKQ"));
}

proptest! {
    #[test]
    fn no_headers_cause_a_panic(id in ".*", at in ".*", signature in ".*", both in ".*") {
        let _ = verify(&verifier(&[SECRET]), &headers(&id, &at, &signature), BODY, AT);
        let stripe = Verifier::new(Scheme::Stripe, [Secret::from_base64(SECRET).unwrap()]);
        let _ = verify(&stripe, &[("stripe-signature", &both)], BODY, AT);
    }
}
