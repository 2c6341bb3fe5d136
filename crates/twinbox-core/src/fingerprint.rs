//! What was asked for, as a digest: a key may be used again for the same request only.
use crate::canonical::{NotCanonical, canonical};
use sha2::{Digest as _, Sha256};

/// How a body becomes bytes to digest. A stored fingerprint is compared by its own algorithm, so that a deployment which
/// changes the algorithm makes nobody's retry a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FingerprintAlgorithm {
    /// JSON whatever its order, spaces and spelling of numbers, which count exactly. What is not JSON, or has a member
    /// twice, as [`Raw`](Self::Raw).
    #[default]
    ExactJson,
    /// JSON as RFC 8785 (JCS) writes it, for those who have to reproduce it elsewhere. Its numbers are binary floating
    /// point: amounts above 2^53 that differ by one are the same. What is not JSON, or has a member twice, as
    /// [`Raw`](Self::Raw).
    StrictJson,
    /// The bytes as they came.
    Raw,
}

/// The digest of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    algorithm: FingerprintAlgorithm,
    digest: [u8; 32],
}

/// What a fingerprint is taken of.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fingerprinted<'a> {
    /// What the body is for, such as method, path, query and media type. Their order and number count.
    pub context: &'a [&'a [u8]],
    /// The body.
    pub body: &'a [u8],
    /// JSON pointers to members of the body that do not count, such as a time.
    pub excluded: &'a [String],
}

impl FingerprintAlgorithm {
    /// Its name where fingerprints are stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExactJson => "jcsx-sha256/1",
            Self::StrictJson => "jcs-sha256/1",
            Self::Raw => "raw-sha256/1",
        }
    }

    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::ExactJson, Self::StrictJson, Self::Raw].into_iter().find(|one| one.as_str() == name)
    }
}

impl Fingerprint {
    /// The fingerprint by `algorithm`, or by [`FingerprintAlgorithm::Raw`] if the body is not fit for it.
    pub fn of(algorithm: FingerprintAlgorithm, what: Fingerprinted<'_>) -> Self {
        let body = match algorithm {
            FingerprintAlgorithm::ExactJson => canonical(what.body, what.excluded),
            FingerprintAlgorithm::StrictJson => {
                canonical(what.body, what.excluded).and_then(|json| strict(&json))
            }
            FingerprintAlgorithm::Raw => Err(NotCanonical),
        };
        match body {
            Ok(body) => Self { algorithm, digest: digest(algorithm, what.context, &body) },
            Err(NotCanonical) => {
                let algorithm = FingerprintAlgorithm::Raw;
                Self { algorithm, digest: digest(algorithm, what.context, what.body) }
            }
        }
    }

    /// How it was made.
    pub const fn algorithm(&self) -> FingerprintAlgorithm {
        self.algorithm
    }

    /// SHA-256 over the algorithm's name and the length-prefixed parts.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// RFC 8785 of what has one meaning.
fn strict(json: &[u8]) -> Result<Vec<u8>, NotCanonical> {
    let json: serde_json::Value = serde_json::from_slice(json).map_err(|_| NotCanonical)?;
    serde_json_canonicalizer::to_vec(&json).map_err(|_| NotCanonical)
}

fn digest(algorithm: FingerprintAlgorithm, context: &[&[u8]], body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(algorithm.as_str());
    for part in context.iter().chain([&body]) {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use FingerprintAlgorithm::{ExactJson, Raw, StrictJson};

    fn of(algorithm: FingerprintAlgorithm, context: &[&[u8]], body: &str) -> Fingerprint {
        Fingerprint::of(algorithm, Fingerprinted { context, body: body.as_bytes(), excluded: &[] })
    }

    /// REQUIREMENTS §5, 5
    #[test]
    fn a_request_that_is_spelled_otherwise_is_the_same() {
        let post: &[&[u8]] = &[b"POST", b"/v1/payments"];
        let first = of(ExactJson, post, r#"{"amount":1,"currency":"INR"}"#);
        assert_eq!(first, of(ExactJson, post, r#"{ "currency": "INR", "amount": 1.0 }"#));
        assert_ne!(first, of(ExactJson, post, r#"{"amount":2,"currency":"INR"}"#));
        assert_ne!(first, of(ExactJson, &[b"POST", b"/v1/refunds"], r#"{"amount":1,"currency":"INR"}"#));
        let large = |n: u64| of(ExactJson, post, &format!("{{\"n\":{n}}}"));
        assert_ne!(large(1 << 53), large((1 << 53) + 1));
    }

    /// REQUIREMENTS §5, 5
    #[test]
    fn what_is_no_plain_json_counts_byte_by_byte() {
        for body in ["", "a=1", "{\"a\":1,\"a\":2}", &format!("{}{}", "[".repeat(200), "]".repeat(200))] {
            let found = of(ExactJson, &[], body);
            assert_eq!((found.algorithm(), found), (Raw, of(Raw, &[], body)));
        }
        assert_ne!(of(Raw, &[], "{}"), of(Raw, &[], "{ }"));
        assert_ne!(of(Raw, &[], "{}").digest(), of(ExactJson, &[], "{}").digest());
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(of(Raw, &[b"ab", b"c"], ""), of(Raw, &[b"a", b"bc"], ""));
        assert_ne!(of(Raw, &[b"a"], "b"), of(Raw, &[], "ab"));
    }

    #[test]
    fn algorithms_are_found_by_their_names() {
        assert_eq!(FingerprintAlgorithm::named("jcsx-sha256/1"), Some(ExactJson));
        assert_eq!(FingerprintAlgorithm::named("jcs-sha256/1"), Some(StrictJson));
        assert_eq!(FingerprintAlgorithm::named("raw-sha256/1"), Some(Raw));
        assert_eq!(FingerprintAlgorithm::named("md5"), None);
    }

    /// The example of RFC 8785 §3.2.2 to §3.2.4, and numbers of its appendix B.
    #[test]
    fn strict_json_is_that_of_the_rfc() {
        let written = |json: &str| {
            let json = strict(&canonical(json.as_bytes(), &[]).unwrap()).unwrap();
            String::from_utf8(json).unwrap()
        };
        let example = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let canonical = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(written(example), canonical);
        for (number, of_the_rfc) in [
            (0x0000_0000_0000_0000u64, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(written(&format!("{:e}", f64::from_bits(number))), of_the_rfc);
        }
    }
}
