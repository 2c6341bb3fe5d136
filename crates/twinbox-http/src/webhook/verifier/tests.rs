use super::*;
use crate::webhook::{CustomScheme, secret::MACS, signature::SIGNATURES_MAX};
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
    assert_eq!(verified, Signature { id: Some(ID.to_owned()), signed_at_s: Some(AT), secret_index: 0 });
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
    let verified = Signature { id: None, signed_at_s: Some(AT), secret_index: 0 };
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

/// The vector that GitHub publishes:
/// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>. t28
#[test]
fn github_signs_its_body() {
    const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let other = Secret::from_bytes([7; 32]).unwrap();
    let github = Verifier::new(
        Scheme::GitHub,
        [other.clone(), Secret::from_bytes("It's a Secret to Everybody").unwrap()],
    );
    let check = |signature: &str, body: &[u8]| {
        let delivery = [("x-hub-signature-256", signature), ("x-github-delivery", "72d3162e")];
        verify(&github, &delivery, body, AT).map(|signature| signature.secret_index)
    };
    let body = b"Hello, World!";
    assert_eq!(check(SIGNATURE, body), Ok(1));
    assert_eq!(check(&other.sign(Scheme::GitHub, "", AT, body)[0].1, body), Ok(0));
    use VerificationError::{Malformed, WrongSignature};
    for (signature, body, why) in [
        (SIGNATURE, &b"Hello, World?"[..], WrongSignature),
        ("sha256=", body, WrongSignature),
        (&SIGNATURE[..SIGNATURE.len() - 1], body, WrongSignature),
        (&SIGNATURE[..SIGNATURE.len() - 2], body, WrongSignature),
        (&SIGNATURE[7..], body, Malformed),
        ("sha1=757107ea0eb2509fc211221cce984b8a37570b6d", body, Malformed),
        ("", body, Malformed),
    ] {
        assert_eq!(check(signature, body), Err(why), "{signature}");
    }
    assert_eq!(verify(&github, &[], body, AT), Err(Malformed));
    let twice = [("x-hub-signature-256", SIGNATURE); 2];
    assert_eq!(verify(&github, &twice, body, AT), Err(Malformed));
}

/// The signature is by another implementation, Python's `hmac`. t28
#[test]
fn shopify_signs_its_body_in_base64() {
    const SIGNATURE: &str = "hAhqsuNYgB6Nu4mymyrNlsYg63AZFRJPVtHj+CgLGF0=";
    let shopify =
        Verifier::new(Scheme::Shopify, [Secret::from_bytes("hush_0123456789abcdef0123456789").unwrap()]);
    let check =
        |signature: &str, body: &[u8]| verify(&shopify, &[("x-shopify-hmac-sha256", signature)], body, AT);
    let verified = Signature { id: None, signed_at_s: None, secret_index: 0 };
    let body = b"{\"id\":820982911946154508}";
    assert_eq!(check(SIGNATURE, body), Ok(verified));
    for (signature, body) in [
        (SIGNATURE, &b"{}"[..]),
        ("", body),
        (&SIGNATURE[..SIGNATURE.len() - 4], body),
        (SIGNATURE.trim_end_matches('='), body),
    ] {
        assert_eq!(check(signature, body), Err(VerificationError::WrongSignature), "{signature}");
    }
}

/// The vector that Slack publishes: <https://api.slack.com/authentication/verifying-requests-from-slack>.
#[test]
fn a_custom_scheme_may_sign_a_time() {
    const SLACK: CustomScheme = CustomScheme::hex("x-slack-signature").prefix("v0=").timestamp(
        "x-slack-request-timestamp",
        "v0:",
        ":",
    );
    const SIGNATURE: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    const BODY: &str = concat!(
        "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V",
        "&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=",
        "&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554",
        "%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121",
        ".803a0bc887a14d10d2c447fce8b6703c",
    );
    let body = BODY.as_bytes();
    let at = 1_531_420_618;
    let secret = Secret::from_bytes("8f742231b10e8888abcd99yyyzzz85a5").unwrap();
    let slack = Verifier::new(Scheme::Custom(SLACK), [secret.clone()]);
    let check = |signature: &str, time: &str, now| {
        let headers = [("x-slack-signature", signature), ("x-slack-request-timestamp", time)];
        verify(&slack, &headers, body, now).map(|signature| signature.signed_at_s)
    };
    assert_eq!(check(SIGNATURE, "1531420618", at), Ok(Some(at)));
    assert_eq!(check(SIGNATURE, "1531420618", at + 301), Err(VerificationError::OutOfTime));
    assert_eq!(check(SIGNATURE, "1531420619", at), Err(VerificationError::WrongSignature));
    assert_eq!(check(SIGNATURE, "01531420618", at), Err(VerificationError::Malformed));
    let signed = secret.sign(Scheme::Custom(SLACK), "", at, body);
    assert_eq!(signed[0], ("x-slack-signature", SIGNATURE.to_owned()));
    assert_eq!(signed[1], ("x-slack-request-timestamp", at.to_string()));
}

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
        for (scheme, header) in [
            (Scheme::Stripe, "stripe-signature"),
            (Scheme::GitHub, "x-hub-signature-256"),
            (Scheme::Shopify, "x-shopify-hmac-sha256"),
        ] {
            let verifier = Verifier::new(scheme, [Secret::from_base64(SECRET).unwrap()]);
            let _ = verify(&verifier, &[(header, &both)], BODY, AT);
        }
    }
}
