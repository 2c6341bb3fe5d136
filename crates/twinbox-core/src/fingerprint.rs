//! Fingerprints of requests: an idempotency key may be used again only for the same request.
use crate::{
    canonical::{NoCanonicalForm, canonical},
    test_signal,
};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

/// The way in which the body of a request is turned into bytes for the digest.
///
/// A stored fingerprint is compared by the algorithm that made it. A deployment can change the algorithm, and
/// retries of earlier requests still match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FingerprintAlgorithm {
    /// Compares canonical JSON with exact numbers, see [`canonical`]. Order of members, spaces and the
    /// spelling of numbers do not matter. A body that is not JSON, or repeats a member, is taken as
    /// [`Raw`](Self::Raw).
    #[default]
    ExactJson,
    /// Compares the canonical JSON of RFC 8785 (JCS), which other languages can reproduce. Its numbers are
    /// binary floating point: amounts above 2^53 that differ by one are the same. A body that is not JSON, or
    /// repeats a member, is taken as [`Raw`](Self::Raw).
    StrictJson,
    /// Compares the bytes of the body as they were received.
    Raw,
}

/// The digest of a request, which shows whether a repeated request is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    algorithm: FingerprintAlgorithm,
    digest: [u8; 32],
}

/// The parts of a request that its fingerprint covers.
#[derive(Debug, Clone, Copy, Default)]
pub struct FingerprintInput<'a> {
    /// The parts besides the body, such as method, path, query and media type. Their order and number matter.
    pub context: &'a [&'a [u8]],
    /// The body of the request.
    pub body: &'a [u8],
    /// JSON pointers to members of the body that do not matter, such as a time.
    pub excluded: &'a [String],
}

impl FingerprintAlgorithm {
    /// Returns the name under which fingerprints of this algorithm are stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExactJson => "jcsx-sha256/1",
            Self::StrictJson => "jcs-sha256/1",
            Self::Raw => "raw-sha256/1",
        }
    }

    /// Returns the algorithm with that stored name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::ExactJson, Self::StrictJson, Self::Raw].into_iter().find(|one| one.as_str() == name)
    }
}

impl Fingerprint {
    /// Computes a fingerprint by `algorithm`, or by [`FingerprintAlgorithm::Raw`] if the body is not JSON.
    pub fn of(algorithm: FingerprintAlgorithm, what: FingerprintInput<'_>) -> Self {
        let [fingerprint] = Self::of_each([algorithm], what);
        fingerprint
    }

    /// Computes a fingerprint by each of the algorithms, as [`of`](Self::of) does. The canonical form of the
    /// body, which takes most of the time, is made once.
    pub fn of_each<const N: usize>(
        algorithms: [FingerprintAlgorithm; N],
        what: FingerprintInput<'_>,
    ) -> [Self; N] {
        let json = if algorithms.iter().all(|one| *one == FingerprintAlgorithm::Raw) {
            Err(NoCanonicalForm)
        } else {
            test_signal::pass("fingerprint.canonical");
            canonical(what.body, what.excluded)
        };
        algorithms.map(|algorithm| {
            let body = match (algorithm, &json) {
                (FingerprintAlgorithm::ExactJson, Ok(json)) => Ok(Cow::Borrowed(&json[..])),
                (FingerprintAlgorithm::StrictJson, Ok(json)) => strict(json).map(Cow::Owned),
                (FingerprintAlgorithm::Raw, _) | (_, Err(NoCanonicalForm)) => Err(NoCanonicalForm),
            };
            match body {
                Ok(body) => Self { algorithm, digest: digest(algorithm, what.context, &body) },
                Err(NoCanonicalForm) => {
                    let algorithm = FingerprintAlgorithm::Raw;
                    Self { algorithm, digest: digest(algorithm, what.context, what.body) }
                }
            }
        })
    }

    /// Returns the algorithm that made this fingerprint.
    pub const fn algorithm(&self) -> FingerprintAlgorithm {
        self.algorithm
    }

    /// Returns the SHA-256 digest of the algorithm's name and the length-prefixed parts.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// Rewrites JSON, whose members are known to be unique, as in RFC 8785.
fn strict(json: &[u8]) -> Result<Vec<u8>, NoCanonicalForm> {
    let json: serde_json::Value = serde_json::from_slice(json).map_err(|_| NoCanonicalForm)?;
    serde_json_canonicalizer::to_vec(&json).map_err(|_| NoCanonicalForm)
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
        Fingerprint::of(algorithm, FingerprintInput { context, body: body.as_bytes(), excluded: &[] })
    }

    #[test]
    fn the_spelling_of_a_request_does_not_matter() {
        let post: &[&[u8]] = &[b"POST", b"/v1/payments"];
        let first = of(ExactJson, post, r#"{"amount":1,"currency":"INR"}"#);
        assert_eq!(first, of(ExactJson, post, r#"{ "currency": "INR", "amount": 1.0 }"#));
        assert_ne!(first, of(ExactJson, post, r#"{"amount":2,"currency":"INR"}"#));
        assert_ne!(first, of(ExactJson, &[b"POST", b"/v1/refunds"], r#"{"amount":1,"currency":"INR"}"#));
        let large = |n: u64| of(ExactJson, post, &format!("{{\"n\":{n}}}"));
        assert_ne!(large(1 << 53), large((1 << 53) + 1));
    }

    #[test]
    fn a_body_that_is_not_json_is_compared_byte_by_byte() {
        for body in ["", "a=1", "{\"a\":1,\"a\":2}", &format!("{}{}", "[".repeat(200), "]".repeat(200))] {
            let found = of(ExactJson, &[], body);
            assert_eq!((found.algorithm(), found), (Raw, of(Raw, &[], body)));
        }
        assert_ne!(of(Raw, &[], "{}"), of(Raw, &[], "{ }"));
        assert_ne!(of(Raw, &[], "{}").digest(), of(ExactJson, &[], "{}").digest());
    }

    #[test]
    fn fingerprints_that_share_a_canonical_form_are_those_of_each_algorithm() {
        for body in ["{\"n\":1.0}", "{\"n\":1e400}", "{\"n\":1,\"n\":1}", "n=1"] {
            let what = FingerprintInput { context: &[b"POST"], body: body.as_bytes(), excluded: &[] };
            let all = [StrictJson, ExactJson, Raw];
            assert_eq!(Fingerprint::of_each(all, what), all.map(|one| Fingerprint::of(one, what)));
        }
    }

    #[test]
    fn the_borders_between_parts_matter() {
        assert_ne!(of(Raw, &[b"ab", b"c"], ""), of(Raw, &[b"a", b"bc"], ""));
        assert_ne!(of(Raw, &[b"a"], "b"), of(Raw, &[], "ab"));
    }

    #[test]
    fn algorithms_are_found_by_their_names() {
        assert_eq!(FingerprintAlgorithm::from_name("jcsx-sha256/1"), Some(ExactJson));
        assert_eq!(FingerprintAlgorithm::from_name("jcs-sha256/1"), Some(StrictJson));
        assert_eq!(FingerprintAlgorithm::from_name("raw-sha256/1"), Some(Raw));
        assert_eq!(FingerprintAlgorithm::from_name("md5"), None);
    }

    /// The example of RFC 8785 §3.2.2 to §3.2.4, and numbers of its appendix B.
    #[test]
    fn strict_json_is_the_form_of_the_rfc() {
        let written = |json: &str| {
            let json = strict(&canonical(json.as_bytes(), &[]).unwrap()).unwrap();
            String::from_utf8(json).unwrap()
        };
        let example = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let canonical = concat!(
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#,
        );
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
