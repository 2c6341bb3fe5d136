//! How requests with a key are compared, as it is kept with them.
use std::borrow::Cow;
use twinbox_core::{Fingerprint, FingerprintAlgorithm, Fingerprinted};

/// Between the name of an algorithm and the members that did not count.
const WITHOUT: &str = " without ";

/// An algorithm, and what it leaves out. It is kept whole, so that a deployment which changes either makes nobody's retry a
/// mismatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comparison<'a> {
    algorithm: FingerprintAlgorithm,
    /// JSON pointers, sorted.
    excluded: Cow<'a, [String]>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(algorithm: FingerprintAlgorithm, excluded: &'a [String]) -> Self {
        let mut excluded = Cow::Borrowed(excluded);
        if !excluded.is_sorted_by(|one, next| one < next) {
            let excluded = excluded.to_mut();
            excluded.sort_unstable();
            excluded.dedup();
        }
        Self { algorithm, excluded }
    }

    /// None: no release has written it.
    pub(super) fn stored(name: &str) -> Option<Self> {
        let (algorithm, excluded) = match name.split_once(WITHOUT) {
            Some((algorithm, excluded)) => (algorithm, serde_json::from_str(excluded).ok()?),
            None => (name, Vec::new()),
        };
        Some(Self { algorithm: FingerprintAlgorithm::named(algorithm)?, excluded: excluded.into() })
    }

    /// The fingerprint of a request, and under what name it is kept.
    pub(super) fn of(&self, request: Fingerprinted<'_>) -> (Fingerprint, String) {
        let print = Fingerprint::of(self.algorithm, Fingerprinted { excluded: &self.excluded, ..request });
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

    #[test]
    fn what_is_kept_says_how_to_compare() {
        let body = br#"{"a":1,"at":2}"#;
        let request = Fingerprinted { context: &[b"POST"], body, excluded: &[] };
        let pointers = ["/b".to_owned(), "/at".to_owned(), "/b".to_owned()];
        let both = Comparison::new(ExactJson, &pointers);
        let (print, name) = both.of(request);
        assert_eq!(name, r#"jcsx-sha256/1 without ["/at","/b"]"#);
        assert_eq!(Comparison::stored(&name), Some(both));
        assert_eq!(Comparison::stored(&name).unwrap().of(request), (print, name));
        for excluded in [&[][..], &pointers] {
            let raw = Comparison::new(Raw, excluded).of(request);
            assert_eq!(raw.1, "raw-sha256/1");
        }
        let (_, plain) = Comparison::new(ExactJson, &[]).of(request);
        assert_eq!(plain, "jcsx-sha256/1");
        for unknown in ["", "md5", "jcsx-sha256/1 without", "jcsx-sha256/1 without /at", "md5 without []"] {
            assert_eq!(Comparison::stored(unknown), None, "{unknown}");
        }
    }
}
