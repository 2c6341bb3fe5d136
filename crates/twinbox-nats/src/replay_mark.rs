//! The mark of a replay: that one consumer handles a message again.
//!
//! It is signed (Ed25519, as an [nkey](https://docs.nats.io/using-nats/developer/connecting/nkey)), because
//! whoever may publish a type can set its headers. The keys that count are in the metadata of the stream,
//! which only a user with the right to change the stream can write. A key shared by relay and consumers would
//! have to be kept secret by every consumer, and would let each of them mark messages.
use crate::header_block::Headers;
use async_nats::HeaderMap;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use std::collections::HashMap;
use twinbox_core::Message;

/// The header with the public key and the signature, in this order, with a space between them.
pub(crate) const SIGNATURE: &str = "twinbox-replay-signature";
/// The prefix of the names of keys in the metadata of a stream.
const METADATA_PREFIX: &str = "twinbox-replay-key.";
/// The most keys of a stream that count. Each destination that publishes to the stream has one.
const KEYS_MAX: usize = 256;

/// The name under which a key is in the metadata of a stream.
pub(crate) fn metadata_name(public_key: &str) -> String {
    format!("{METADATA_PREFIX}{public_key}")
}

/// Signs the mark of a message, if it has one, by adding a header to `headers`.
pub(crate) fn sign(key: &KeyPair, message: &Message, headers: &mut HeaderMap) {
    if message.reprocess_target().is_none() {
        return;
    }
    if let Ok(signature) = key.sign(&signed_bytes(headers, &message.payload)) {
        headers.insert(SIGNATURE, format!("{} {}", key.public_key(), URL_SAFE_NO_PAD.encode(signature)));
    }
}

/// The keys whose signatures count on a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReplayKeys(Vec<String>);

impl ReplayKeys {
    /// Returns the keys in the metadata of a stream.
    pub(crate) fn of(metadata: &HashMap<String, String>) -> Self {
        let names = metadata.keys().filter_map(|name| name.strip_prefix(METADATA_PREFIX));
        Self(names.take(KEYS_MAX).map(str::to_owned).collect())
    }

    /// Whether the mark of a message, if it has one, may be signed with a key that was added since.
    pub(crate) fn lack_key_of(&self, headers: &Headers) -> bool {
        let Headers::Read(headers) = headers else { return false };
        signature(headers).is_some_and(|(key, _)| !self.0.iter().any(|known| known == key))
    }

    /// Whether a relay of the stream has signed these headers and this payload.
    pub(crate) fn verify(&self, headers: &HeaderMap, payload: &[u8]) -> bool {
        let Some((key, signature)) = signature(headers) else { return false };
        if !self.0.iter().any(|known| known == key) {
            return false;
        }
        let (Ok(signature), Ok(key)) = (URL_SAFE_NO_PAD.decode(signature), KeyPair::from_public_key(key))
        else {
            return false;
        };
        key.verify(&signed_bytes(headers, payload), &signature).is_ok()
    }
}

fn signature(headers: &HeaderMap) -> Option<(&str, &str)> {
    headers.get(SIGNATURE)?.as_str().split_once(' ')
}

/// Returns the payload and all headers but those of NATS itself: servers and copies of streams add some.
fn signed_bytes(headers: &HeaderMap, payload: &[u8]) -> Vec<u8> {
    let each = headers.iter().map(|(name, values)| (AsRef::<str>::as_ref(name), values));
    let is_signed = |name: &str| name != SIGNATURE && !name.to_ascii_lowercase().starts_with("nats-");
    let mut each = Vec::from_iter(each.filter(|(name, _)| is_signed(name)));
    each.sort_by_key(|(name, _)| *name);
    let mut bytes = b"twinbox-replay/1".to_vec();
    let mut add = |part: &[u8]| {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part);
    };
    for (name, values) in each {
        for value in values {
            add(name.as_bytes());
            // A server and readers leave out spaces at both ends.
            add(value.as_str().trim().as_bytes());
        }
    }
    add(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use nkeys::KeyPairType;
    use twinbox_core::Draft;

    fn key(seed: u8) -> KeyPair {
        KeyPair::new_from_raw(KeyPairType::Service, [seed; 32]).unwrap()
    }

    fn keys(of: &[&KeyPair]) -> ReplayKeys {
        ReplayKeys::of(&of.iter().map(|key| (metadata_name(&key.public_key()), String::new())).collect())
    }

    fn marked() -> (Message, HeaderMap) {
        let mut message = Draft::raw("orders.placed", 1, &b"{}"[..]).into_message("shop");
        let token = "00112233445566778899aabbccddeeff".to_owned();
        message.headers.push(("twinbox-replay".to_owned(), token.clone()));
        message.headers.push(("twinbox-replay-for".to_owned(), "billing.all".to_owned()));
        let mut headers = HeaderMap::new();
        headers.insert("ce-type", "orders.placed");
        headers.insert("X-Region", " eu ");
        headers.insert("twinbox-replay", token);
        headers.insert("twinbox-replay-for", "billing.all");
        (message, headers)
    }

    #[test]
    fn a_mark_counts_if_a_relay_of_the_stream_has_signed_it() {
        let (relay, stranger) = (key(1), key(2));
        let (message, mut headers) = marked();
        assert!(!keys(&[&relay]).verify(&headers, b"{}"));
        sign(&relay, &message, &mut headers);
        assert!(keys(&[&relay, &stranger]).verify(&headers, b"{}"));
        assert!(!keys(&[&stranger]).verify(&headers, b"{}"));
        assert!(keys(&[&stranger]).lack_key_of(&Headers::Read(headers.clone())));
        assert!(!keys(&[&relay]).lack_key_of(&Headers::Read(headers)));
    }

    #[test]
    fn a_message_without_a_mark_is_not_signed() {
        let message = Draft::raw("orders.placed", 1, &b"{}"[..]).into_message("shop");
        let mut headers = HeaderMap::new();
        sign(&key(1), &message, &mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn what_servers_do_to_headers_changes_no_signature_and_all_else_does() {
        let relay = key(1);
        let (message, mut signed) = marked();
        sign(&relay, &message, &mut signed);
        let keys = keys(&[&relay]);
        let with = |name: &str, value: &str| {
            let mut headers = signed.clone();
            headers.insert(name, value);
            headers
        };
        assert!(keys.verify(&with("X-Region", "eu"), b"{}"));
        assert!(keys.verify(&with("Nats-Stream-Source", "EVENTS 1"), b"{}"));
        assert!(!keys.verify(&signed, b"{ }"));
        assert!(!keys.verify(&with("X-Region", "us"), b"{}"));
        assert!(!keys.verify(&with("twinbox-replay-for", "billing.other"), b"{}"));
        assert!(!keys.verify(&with("x-added", ""), b"{}"));
        let bad = [String::new(), "x".to_owned(), format!("{} zz", relay.public_key()), "a b c".to_owned()];
        for bad in bad {
            assert!(!keys.verify(&with(SIGNATURE, &bad), b"{}"), "{bad}");
        }
    }
}
