//! What a build of a service can read, for whoever deploys it.
use crate::DecodeError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The form that this version writes.
const FORMAT: u32 = 1;

/// What the consumers of one build can read. `Consumer::manifest` makes one, and `twinbox check` holds what waits in a
/// database against it before the build is deployed. As JSON:
///
/// ```json
/// {
///   "twinbox_manifest": 1,
///   "codecs": ["aes-gcm"],
///   "consumers": { "billing.invoice": { "orders.placed": [1, 2] } }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    #[serde(rename = "twinbox_manifest")]
    format: u32,
    codecs: Vec<String>,
    /// Of each consumer its types, and of each type the versions that it reads.
    consumers: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
}

impl Manifest {
    /// Of a build with these codecs, and no consumer yet.
    pub fn new(codecs: impl IntoIterator<Item = String>) -> Self {
        Self { format: FORMAT, codecs: codecs.into_iter().collect(), consumers: BTreeMap::new() }
    }

    /// Adds what a consumer reads of one type.
    #[must_use]
    pub fn reads(mut self, consumer: &str, event_type: &str, versions: Vec<u32>) -> Self {
        let types = self.consumers.entry(consumer.to_owned()).or_default();
        types.insert(event_type.to_owned(), versions);
        self
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// Says what is wrong with it; a newer Twinbox may have written it.
    pub fn from_json(json: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            #[serde(rename = "twinbox_manifest")]
            format: u32,
        }
        let no = |error| format!("no manifest: {error}");
        match serde_json::from_str(json).map_err(no)? {
            Form { format: FORMAT } => serde_json::from_str(json).map_err(no),
            Form { format } => {
                Err(format!("a manifest of the form {format}, and this program reads the form {FORMAT}"))
            }
        }
    }

    /// As text, to be kept or handed on.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Its consumers, by name.
    pub fn consumers(&self) -> impl Iterator<Item = &str> {
        self.consumers.keys().map(String::as_str)
    }

    /// Whether the consumer has a handler for the type.
    pub fn handles(&self, consumer: &str, event_type: &str) -> bool {
        self.consumers.get(consumer).is_some_and(|types| types.contains_key(event_type))
    }

    /// Whether the consumer of this build can read such a message: the same as what it would find when it comes.
    ///
    /// # Errors
    /// Says why not.
    pub fn check(
        &self,
        consumer: &str,
        event_type: &str,
        version: u32,
        codec: Option<&str>,
    ) -> Result<(), String> {
        let versions = self.consumers.get(consumer).and_then(|types| types.get(event_type));
        let Some(versions) = versions else { return Err(format!("no handler for {event_type:?}")) };
        if let Some(codec) = codec.filter(|codec| !self.codecs.iter().any(|known| known == codec)) {
            return Err(DecodeError::UnknownCodec { codec: codec.to_owned() }.to_string());
        }
        if versions.contains(&version) {
            return Ok(());
        }
        let older = versions.iter().copied().filter(|known| *known < version).max();
        Err(match older {
            Some(known) => DecodeError::Newer { found: version, known },
            None => DecodeError::Forgotten { found: version },
        }
        .to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let manifest = Manifest::new(["flip".to_owned()]);
        manifest.reads("billing", "orders.placed", vec![2, 4]).reads("search", "orders.placed", vec![1])
    }

    #[test]
    fn each_message_is_read_or_says_why_not() {
        let says = |version, codec| manifest().check("billing", "orders.placed", version, codec);
        assert_eq!(says(2, None), Ok(()));
        assert_eq!(says(4, Some("flip")), Ok(()));
        for (version, codec, expected) in [
            (1, None, "no upcaster from 1"),
            (3, None, "version 3 is newer than 2"),
            (5, None, "version 5 is newer than 4"),
            (2, Some("aes"), "encoded with \"aes\""),
        ] {
            let problem = says(version, codec).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(manifest().check("billing", "orders.sent", 1, None).unwrap_err().contains("no handler"));
        assert_eq!(Vec::from_iter(manifest().consumers()), ["billing", "search"]);
        assert!(
            manifest().handles("search", "orders.placed") && !manifest().handles("search", "orders.sent")
        );
    }

    #[test]
    fn a_manifest_survives_being_written_and_says_what_it_is_not() {
        assert_eq!(Manifest::from_json(&manifest().to_json()), Ok(manifest()));
        for (text, expected) in [
            ("", "no manifest"),
            ("{}", "twinbox_manifest"),
            (r#"{"twinbox_manifest": 2, "consumers": []}"#, "the form 2"),
            (r#"{"twinbox_manifest": 1, "codecs": [], "consumers": {"a": {"b": [-1]}}}"#, "-1"),
        ] {
            let problem = Manifest::from_json(text).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
