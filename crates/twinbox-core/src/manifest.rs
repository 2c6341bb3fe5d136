//! Manifests: the messages that a build of a service can read.
use crate::event::DecodeError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The format that this version of Twinbox writes.
const FORMAT: u32 = 1;

/// The codecs, event types and versions that the consumers of one build can read.
///
/// `Consumer::manifest` returns it. Before the build is deployed, `twinbox schemas check` compares it with
/// the messages that wait in a database. As JSON:
///
/// ```json
/// {
///   "twinbox_manifest": 1,
///   "codecs": ["aes-gcm"],
///   "consumers": { "billing.invoice": { "orders.placed": [1, 2] } }
/// }
/// ```
///
/// It also has `"requires_codec": true` if the build refuses messages that are not encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    #[serde(rename = "twinbox_manifest")]
    format: u32,
    codecs: Vec<String>,
    /// Whether messages that are not encoded are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    requires_codec: bool,
    /// Versions by consumer and event type.
    consumers: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
}

impl Manifest {
    /// Creates the manifest of a build with these codecs and no consumer.
    pub fn new(codecs: impl IntoIterator<Item = String>) -> Self {
        Self {
            format: FORMAT,
            codecs: codecs.into_iter().collect(),
            requires_codec: false,
            consumers: BTreeMap::new(),
        }
    }

    /// Sets whether the build refuses messages that are not encoded, as `StoreOptions::require_codec` says.
    #[must_use]
    pub fn with_required_codec(self, requires_codec: bool) -> Self {
        Self { requires_codec, ..self }
    }

    /// Adds the versions of one event type that a consumer reads.
    #[must_use]
    pub fn with_type(mut self, consumer: &str, event_type: &str, versions: Vec<u32>) -> Self {
        let types = self.consumers.entry(consumer.to_owned()).or_default();
        types.insert(event_type.to_owned(), versions);
        self
    }

    /// Reads a manifest that [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// The text is not a manifest, or a newer Twinbox wrote it in another format.
    pub fn from_json(json: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Header {
            #[serde(rename = "twinbox_manifest")]
            format: u32,
        }
        let invalid = |error| format!("this is not a manifest: {error}");
        match serde_json::from_str(json).map_err(invalid)? {
            Header { format: FORMAT } => serde_json::from_str(json).map_err(invalid),
            Header { format } => Err(format!(
                "the manifest has format {format}, and this program reads format {FORMAT}: \
                 use the version of Twinbox that wrote the manifest"
            )),
        }
    }

    /// Writes this manifest as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Returns the names of the consumers, sorted.
    pub fn consumers(&self) -> impl Iterator<Item = &str> {
        self.consumers.keys().map(String::as_str)
    }

    /// Returns whether the consumer has a handler for the event type.
    pub fn handles(&self, consumer: &str, event_type: &str) -> bool {
        self.consumers.get(consumer).is_some_and(|types| types.contains_key(event_type))
    }

    /// Checks that the consumer can read a message of this type, version and codec.
    ///
    /// # Errors
    /// Returns the reason for which the consumer would make the message a dead letter.
    pub fn check(
        &self,
        consumer: &str,
        event_type: &str,
        version: u32,
        codec: Option<&str>,
    ) -> Result<(), String> {
        let versions = self.consumers.get(consumer).and_then(|types| types.get(event_type));
        let Some(versions) = versions else { return Err(format!("no handler for {event_type:?}")) };
        match codec {
            None if self.requires_codec => return Err(DecodeError::NotEncoded.to_string()),
            Some(codec) if !self.codecs.iter().any(|known| known == codec) => {
                return Err(DecodeError::UnknownCodec { codec: codec.to_owned() }.to_string());
            }
            _ => {}
        }
        if versions.contains(&version) {
            return Ok(());
        }
        let older = versions.iter().copied().filter(|known| *known < version).max();
        Err(match older {
            Some(known) => DecodeError::UnknownNewer { found: version, known },
            None => DecodeError::UnknownOlder { found: version },
        }
        .to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let manifest = Manifest::new(["flip".to_owned()]);
        manifest.with_type("billing", "orders.placed", vec![2, 4]).with_type(
            "search",
            "orders.placed",
            vec![1],
        )
    }

    #[test]
    fn a_message_is_readable_or_there_is_a_reason() {
        let check = |version, codec| manifest().check("billing", "orders.placed", version, codec);
        assert_eq!(check(2, None), Ok(()));
        assert_eq!(check(4, Some("flip")), Ok(()));
        for (version, codec, expected) in [
            (1, None, "no upcaster from version 1"),
            (3, None, "version 3 is newer than 2"),
            (5, None, "version 5 is newer than 4"),
            (2, Some("aes"), "encoded with \"aes\""),
        ] {
            let problem = check(version, codec).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(manifest().check("billing", "orders.sent", 1, None).unwrap_err().contains("no handler"));
        let strict = manifest().with_required_codec(true);
        let plain = strict.check("billing", "orders.placed", 2, None).unwrap_err();
        assert!(plain.contains("`StoreOptions::require_codec`"), "{plain}");
        assert_eq!(strict.check("billing", "orders.placed", 2, Some("flip")), Ok(()));
        assert_eq!(Vec::from_iter(manifest().consumers()), ["billing", "search"]);
        assert!(
            manifest().handles("search", "orders.placed") && !manifest().handles("search", "orders.sent")
        );
    }

    #[test]
    fn a_written_manifest_can_be_read_and_other_texts_cannot() {
        for manifest in [manifest(), manifest().with_required_codec(true)] {
            assert_eq!(Manifest::from_json(&manifest.to_json()), Ok(manifest));
        }
        for (text, expected) in [
            ("", "not a manifest"),
            ("{}", "twinbox_manifest"),
            (r#"{"twinbox_manifest": 2, "consumers": []}"#, "has format 2"),
            (r#"{"twinbox_manifest": 1, "codecs": [], "consumers": {"a": {"b": [-1]}}}"#, "-1"),
        ] {
            let problem = Manifest::from_json(text).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
