//! How requests with the same key are compared.
use super::digest::RequestDigest;
use std::borrow::Cow;
use twinbox_core::{Fingerprint, FingerprintAlgorithm};

/// Stands between the name of an algorithm and the members that it leaves out.
const WITHOUT: &str = " without ";

/// An algorithm and the members that it leaves out. Both are stored with the key, so that a deployment that
/// changes either makes no retry a mismatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comparison<'a> {
    algorithm: FingerprintAlgorithm,
    /// JSON pointers, sorted.
    excluded: Cow<'a, [String]>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(algorithm: FingerprintAlgorithm, request: &'a RequestDigest) -> Self {
        Self { algorithm, excluded: request.excluded().into() }
    }

    /// The comparison of a stored name. None: no release wrote it.
    pub(super) fn stored(name: &str) -> Option<Self> {
        let (algorithm, excluded) = match name.split_once(WITHOUT) {
            Some((algorithm, excluded)) => (algorithm, serde_json::from_str(excluded).ok()?),
            None => (name, Vec::new()),
        };
        Some(Self { algorithm: FingerprintAlgorithm::from_name(algorithm)?, excluded: excluded.into() })
    }

    /// The fingerprint of a request, and the name of the comparison.
    pub(super) async fn of(&self, request: &RequestDigest) -> (Fingerprint, String) {
        let print = request.fingerprint_without(&self.excluded, self.algorithm).await;
        let name = print.algorithm().as_str();
        // Bytes have no members.
        if self.excluded.is_empty() || print.algorithm() == FingerprintAlgorithm::Raw {
            return (print, name.to_owned());
        }
        let excluded = serde_json::to_string(&self.excluded).unwrap_or_default();
        (print, format!("{name}{WITHOUT}{excluded}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FingerprintAlgorithm::{ExactJson, Raw};

    #[tokio::test]
    async fn the_stored_name_tells_how_to_compare() {
        let pointers = ["/b".to_owned(), "/at".to_owned(), "/b".to_owned()];
        let whole = RequestDigest::new(vec!["POST".into()], r#"{"a":1,"at":2}"#);
        let request = RequestDigest::new(vec!["POST".into()], r#"{"a":1,"at":2}"#).excluding(&pointers);
        let both = Comparison::new(ExactJson, &request);
        let (print, name) = both.of(&request).await;
        assert_eq!(name, r#"jcsx-sha256/1 without ["/at","/b"]"#);
        assert_eq!(Comparison::stored(&name), Some(both));
        let stored = Comparison::stored(&name).unwrap();
        assert_eq!(stored.of(&whole).await, (print, name), "what a route excludes now does not matter");
        for request in [&whole, &request] {
            let raw = Comparison::new(Raw, request).of(request).await;
            assert_eq!(raw.1, "raw-sha256/1");
        }
        let (_, plain) = Comparison::new(ExactJson, &whole).of(&whole).await;
        assert_eq!(plain, "jcsx-sha256/1");
        for unknown in ["", "md5", "jcsx-sha256/1 without", "jcsx-sha256/1 without /at", "md5 without []"] {
            assert_eq!(Comparison::stored(unknown), None, "{unknown}");
        }
    }
}
