//! Encryption of payloads with AES-256-GCM.
use super::{EncodedPayload, PayloadCodec, PayloadContext};
use crate::{boxed::BoxError, limits};
use aes_gcm::{
    Aes256Gcm, KeyInit as _,
    aead::{Aead as _, Generate as _, Nonce, Payload},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{error::Error, fmt};

/// The header with the id of the key that encrypted the payload.
const KEY_HEADER: &str = "encryption-key";
const NONCE_BYTES: usize = 12;

/// Encrypts payloads with AES-256-GCM (NIST SP 800-38D). One key encrypts; any number of older ones decrypt.
///
/// A payload is bound to its purpose and its service, and to columns of its row. If one of them changes, or
/// the payload is put into another row, it does not decrypt:
///
/// | payload of | is bound to |
/// |---|---|
/// | a message | id, type, version, key, subject, content type |
/// | the request of a side effect | source and kind, vendor, key, method, target, content type, headers |
/// | a stored response | slot of its key, principal, status, code, headers |
///
/// The others may be changed by who may change the row: headers, time and correlation of a message, or how
/// far the sending of a side effect has come. All columns but the payload stay readable.
///
/// It does not refuse what nobody encrypted: `StoreOptions::require_codec` does.
///
/// To change the key, give every process a key file with the new key as its *second* line, then one with the
/// new key as its *first* line. Remove the old key when no message, dead letter or stored response needs it
/// any more; what it encrypted is then lost, in every copy.
///
/// A message costs 28 bytes and a header. The nonce is random, so change the key before it has encrypted 2³²
/// messages.
///
/// ```
/// use twinbox_core::codec::AesGcm;
///
/// // An id and 32 random bytes in base64, as of `openssl rand -base64 32`.
/// let keys = "
///     2026-11 f/3ZBSo6WQbBmSYVQCaDdX3LbOzYb0Ct1DsWEX1RAXQ=
///     2026-05 0EgHFT4R9OVwzTnKUbZBIEMuMfBPJtwJKMZfLw7h5kE=
/// ";
/// let codec: AesGcm = keys.parse()?;
/// # Ok::<(), twinbox_core::codec::InvalidKeys>(())
/// ```
pub struct AesGcm {
    newest: Key,
    /// They only decrypt.
    older: Vec<Key>,
}

struct Key {
    id: String,
    cipher: Box<Aes256Gcm>,
}

/// Why the text of a key file is refused. Repeats nothing of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidKeys(String);

impl fmt::Display for InvalidKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidKeys {}

/// Ids alone.
impl fmt::Debug for AesGcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys().map(|key| &key.id)).finish()
    }
}

impl AesGcm {
    /// Creates a codec that encrypts with a key of an id, such as `2026-11`.
    ///
    /// # Errors
    /// The id does not have 1 to 120 visible ASCII characters.
    pub fn new(id: &str, key: &[u8; 32]) -> Result<Self, InvalidKeys> {
        Ok(Self { newest: Key::new(id, key)?, older: Vec::new() })
    }

    /// Adds a key that only decrypts.
    ///
    /// # Errors
    /// As [`new`](Self::new), or there is a key of that id.
    pub fn decrypts(mut self, id: &str, key: &[u8; 32]) -> Result<Self, InvalidKeys> {
        self.add(Key::new(id, key)?)?;
        Ok(self)
    }

    fn add(&mut self, key: Key) -> Result<(), InvalidKeys> {
        if self.key(&key.id).is_some() {
            return Err(InvalidKeys(format!("the key {:?} is there twice", key.id)));
        }
        self.older.push(key);
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.newest).chain(&self.older)
    }

    fn key(&self, id: &str) -> Option<&Key> {
        self.keys().find(|key| key.id == id)
    }
}

impl Key {
    fn new(id: &str, key: &[u8; 32]) -> Result<Self, InvalidKeys> {
        if !(1..=limits::NAME_BYTES_MAX).contains(&id.len())
            || !id.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(InvalidKeys(format!(
                "the id {id:?} of a key must have 1 to {} visible ASCII characters",
                limits::NAME_BYTES_MAX
            )));
        }
        Ok(Self { id: id.to_owned(), cipher: Box::new(Aes256Gcm::new(key.into())) })
    }

    fn parse(line: &str, number: usize) -> Result<Self, InvalidKeys> {
        let refused = |why: &str| InvalidKeys(format!("line {number} of the keys: {why}"));
        let (id, key) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| refused("write the id of the key, a space, and 32 bytes in base64"))?;
        let key = STANDARD.decode(key.trim()).map_err(|_| refused("the key is no base64"))?;
        let key: &[u8; 32] = key
            .as_slice()
            .try_into()
            .map_err(|_| refused(&format!("the key has {} bytes, not 32", key.len())))?;
        Self::new(id, key)
    }
}

/// Reads the text of a key file: a line for each key, its id, a space, and 32 bytes in base64. The first key
/// encrypts. Empty lines and those that begin with `#` count for nothing.
impl std::str::FromStr for AesGcm {
    type Err = InvalidKeys;

    fn from_str(text: &str) -> Result<Self, InvalidKeys> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let is_key = |line: &str| !(line.is_empty() || line.starts_with('#'));
        let mut keys = lines.filter(|(_, line)| is_key(line)).map(|(number, line)| Key::parse(line, number));
        let newest = keys.next().ok_or_else(|| InvalidKeys("the text holds no key".to_owned()))??;
        let mut codec = Self { newest, older: Vec::new() };
        keys.try_for_each(|key| codec.add(key?))?;
        Ok(codec)
    }
}

impl PayloadCodec for AesGcm {
    fn name(&self) -> &str {
        "aes-256-gcm"
    }

    fn encode(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<EncodedPayload, BoxError> {
        let key = &self.newest;
        let nonce = Nonce::<Aes256Gcm>::try_generate()?;
        let aad = &context.associated_data();
        let encrypted =
            key.cipher.encrypt(&nonce, Payload { msg: payload, aad }).map_err(|e| e.to_string())?;
        let bytes = [&nonce[..], &encrypted].concat();
        Ok(EncodedPayload::new(bytes).header(KEY_HEADER, &key.id))
    }

    fn decode(
        &self,
        context: &PayloadContext<'_>,
        headers: &[(String, String)],
        payload: &[u8],
    ) -> Result<Vec<u8>, BoxError> {
        // A header of the application may have the same name. The codec's comes after it.
        let id = headers.iter().rfind(|(name, _)| name == KEY_HEADER).map(|(_, id)| id);
        let id = id.ok_or_else(|| format!("there is no header {KEY_HEADER:?}"))?;
        let key = self.key(id).ok_or_else(|| format!("there is no key {id:?}"))?;
        let (nonce, encrypted) =
            payload.split_first_chunk::<NONCE_BYTES>().ok_or("the payload is too short for a nonce")?;
        let aad = &context.associated_data();
        let decrypted = key.cipher.decrypt(nonce.into(), Payload { msg: encrypted, aad });
        Ok(decrypted.map_err(|_| {
            format!("the payload or what it is bound to was changed, or another key is called {id:?}")
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::PayloadPurpose;

    const PAYLOAD: &[u8] = br#"{"name":"Ada"}"#;
    const JSON: &str = "application/json";

    fn context() -> PayloadContext<'static> {
        of("shop", "1", "people.moved", 1, Some("ada"))
    }

    fn of(
        source: &'static str,
        id: &'static str,
        event_type: &'static str,
        version: u32,
        key: Option<&'static str>,
    ) -> PayloadContext<'static> {
        PayloadContext::of_message(source, id, event_type, version, key, Some("people/1"), JSON)
    }

    fn encoded(codec: &AesGcm) -> (Vec<u8>, Vec<(String, String)>) {
        let (payload, headers) = codec.encode(&context(), PAYLOAD).unwrap().into_parts();
        (payload.into(), headers)
    }

    fn refusal(decoded: Result<Vec<u8>, BoxError>) -> String {
        decoded.unwrap_err().to_string()
    }

    #[test]
    fn a_payload_that_an_older_key_encrypted_is_read_after_a_change_of_keys() {
        let old = AesGcm::new("old", &[1; 32]).unwrap();
        let (payload, headers) = encoded(&old);
        let both = AesGcm::new("new", &[2; 32]).unwrap().decrypts("old", &[1; 32]).unwrap();
        assert_eq!(both.decode(&context(), &headers, &payload).unwrap(), PAYLOAD);
        let (payload, headers) = encoded(&both);
        assert_eq!(headers, [("encryption-key".to_owned(), "new".to_owned())]);
        assert_eq!(refusal(old.decode(&context(), &headers, &payload)), "there is no key \"new\"");
    }

    #[test]
    fn two_encryptions_of_a_payload_differ() {
        let codec = AesGcm::new("k", &[1; 32]).unwrap();
        assert_ne!(encoded(&codec).0, encoded(&codec).0);
    }

    #[test]
    fn a_payload_is_bound_to_its_message_and_its_key() {
        let codec = AesGcm::new("k", &[1; 32]).unwrap();
        let (payload, headers) = encoded(&codec);
        let changed = "the payload or what it is bound to was changed, or another key is called \"k\"";
        let ada = Some("ada");
        let with = |subject, content_type| {
            PayloadContext::of_message("shop", "1", "people.moved", 1, ada, subject, content_type)
        };
        let mut effect = context();
        effect.purpose = PayloadPurpose::SideEffect;
        for other in [
            effect,
            of("billing", "1", "people.moved", 1, ada),
            of("shop", "2", "people.moved", 1, ada),
            of("shop", "1", "people.moved2", 1, ada),
            of("shop", "1", "people.moved", 2, ada),
            of("shop", "1", "people.moved", 1, Some("bob")),
            of("shop", "1", "people.moved", 1, None),
            with(Some("people/2"), JSON),
            with(None, JSON),
            with(Some("people/1"), "text/html"),
            // The same letters, cut at other places.
            of("shop1", "", "people.moved", 1, ada),
        ] {
            assert_eq!(refusal(codec.decode(&other, &headers, &payload)), changed, "{other:?}");
        }
        for at in 0..payload.len() {
            let mut bytes = payload.clone();
            bytes[at] ^= 1;
            assert_eq!(refusal(codec.decode(&context(), &headers, &bytes)), changed, "byte {at}");
        }
        let same_name = AesGcm::new("k", &[2; 32]).unwrap();
        assert_eq!(refusal(same_name.decode(&context(), &headers, &payload)), changed);
        for length in 0..NONCE_BYTES {
            let short = refusal(codec.decode(&context(), &headers, &payload[..length]));
            assert_eq!(short, "the payload is too short for a nonce");
        }
    }

    #[test]
    fn a_header_of_the_application_does_not_choose_the_key() {
        let codec = AesGcm::new("k", &[1; 32]).unwrap();
        let (payload, mut headers) = encoded(&codec);
        headers.insert(0, ("encryption-key".to_owned(), "mine".to_owned()));
        assert_eq!(codec.decode(&context(), &headers, &payload).unwrap(), PAYLOAD);
    }

    #[test]
    fn a_key_file_is_refused_by_line_and_without_its_keys() {
        let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let codec: AesGcm = format!("# the keys of the shop\n\n  new {key}\nold\t{key}\n").parse().unwrap();
        assert_eq!(format!("{codec:?}"), r#"["new", "old"]"#);
        for (text, why) in [
            ("# none\n", "the text holds no key"),
            ("new\n", "line 1 of the keys: write the id of the key, a space, and 32 bytes in base64"),
            ("\nnew hush!\n", "line 2 of the keys: the key is no base64"),
            ("new aHVzaA==\n", "line 1 of the keys: the key has 4 bytes, not 32"),
            (&format!("a {key}\na {key}"), "the key \"a\" is there twice"),
            (
                &format!("schlüssel {key}"),
                "the id \"schlüssel\" of a key must have 1 to 120 visible ASCII characters",
            ),
        ] {
            assert_eq!(text.parse::<AesGcm>().unwrap_err().to_string(), why);
        }
    }
}
