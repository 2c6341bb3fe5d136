//! The request of a side effect.
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use serde::Serialize;
use twinbox_core::limits;
use twinbox_sql::{
    Error, ErrorKind,
    engine::{headers, read_headers},
};

/// The most bytes of a kind, its qualifier included.
pub const KIND_BYTES_MAX: usize = 255;
/// The most bytes of a target.
pub const TARGET_BYTES_MAX: usize = 2048;

/// Headers that an effect must not hold: credentials would lie in the database, and the sender sets the
/// others.
const RESERVED: [&str; 14] = [
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The request that a side effect sends to its vendor. It is stored as it is, so every try sends the same
/// bytes, whatever a later release of the application would write.
///
/// It holds no credentials. The vendor adds them when it sends the request.
///
/// ```
/// use twinbox_effects::EffectRequest;
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let mail = serde_json::json!({"to": "ada@example.org", "subject": "Welcome"});
/// let request = EffectRequest::json("resend", &mail)?.target("/emails");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct EffectRequest {
    pub(crate) vendor: String,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) content_type: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) key: Option<String>,
}

impl EffectRequest {
    /// Creates a `POST` of bytes to the vendor that the dispatcher knows by this name.
    pub fn new(vendor: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            vendor: vendor.into(),
            method: "POST".to_owned(),
            target: String::new(),
            content_type: "application/octet-stream".to_owned(),
            headers: Vec::new(),
            body: body.into(),
            key: None,
        }
    }

    /// Creates a `POST` of JSON.
    ///
    /// # Errors
    /// The value is no JSON, such as a map whose keys are no text.
    pub fn json(vendor: impl Into<String>, body: &impl Serialize) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_vec(body)?;
        Ok(Self { content_type: "application/json".to_owned(), ..Self::new(vendor, body) })
    }

    /// Sets the HTTP method.
    pub fn method(self, method: impl Into<String>) -> Self {
        Self { method: method.into(), ..self }
    }

    /// Sets the path and the query, which follow the base URL of the vendor.
    pub fn target(self, target: impl Into<String>) -> Self {
        Self { target: target.into(), ..self }
    }

    /// Sets the media type of the body.
    pub fn content_type(self, content_type: impl Into<String>) -> Self {
        Self { content_type: content_type.into(), ..self }
    }

    /// Adds a header. Credentials are refused.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends effects of one vendor and key one after another, in the order in which they were planned. The
    /// next one waits until the one before is confirmed, failed or resolved.
    ///
    /// Writers of one key must take turns, as they do when each locks the row of its aggregate first.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Returns whether both are the same as they are stored: as an object of JSON, which has no order of
    /// headers. One of `serde_json` has an order if the application turns on the feature `preserve_order`.
    pub(crate) fn is_stored_like(&self, other: &Self) -> bool {
        let stored = |request: &Self| {
            let mut headers = headers(&request.headers).as_deref().map(read_headers).unwrap_or_default();
            headers.sort_unstable();
            Self { headers, ..request.clone() }
        };
        stored(self) == stored(other)
    }

    /// Refuses what cannot be stored, or never be sent.
    pub(crate) fn check(&self, kind: &str) -> Result<(), Error> {
        let refuse = |what: String| {
            Err(Error::new(
                ErrorKind::Configuration,
                format!("the effect {kind:?} cannot be planned: {what}"),
            ))
        };
        let is_name =
            |text: &str, max| (1..=max).contains(&text.len()) && !text.chars().any(char::is_control);
        if !is_kind(kind) {
            return refuse(format!(
                "a kind is `base` or `base:qualifier`, at most {KIND_BYTES_MAX} bytes, no control characters"
            ));
        }
        if !is_name(&self.vendor, limits::NAME_BYTES_MAX) {
            return refuse(format!("the vendor {:?} must have 1 to 120 bytes", self.vendor));
        }
        if self.key.as_deref().is_some_and(|key| !is_name(key, limits::KEY_BYTES_MAX)) {
            return refuse("its key must have 1 to 255 bytes and no control character".to_owned());
        }
        if self.target.len() > TARGET_BYTES_MAX || self.target.bytes().any(|b| !b.is_ascii_graphic()) {
            return refuse(format!(
                "its target must be a path and query of at most {TARGET_BYTES_MAX} visible ASCII characters"
            ));
        }
        if self.body.len() > limits::PAYLOAD_BYTES_MAX {
            return refuse(format!("its body has {} bytes, and the most is 983,040", self.body.len()));
        }
        if self.method.len() > 16 || Method::from_bytes(self.method.as_bytes()).is_err() {
            return refuse(format!("{:?} is no HTTP method", self.method));
        }
        // The first one leaves the base URL behind, and the second one gives the credential back.
        if [Method::CONNECT, Method::TRACE].iter().any(|method| self.method == method.as_str()) {
            return refuse(format!("the method {} is not sent to a vendor", self.method));
        }
        if HeaderValue::from_str(&self.content_type).is_err()
            || self.content_type.len() > limits::CONTENT_TYPE_BYTES_MAX
        {
            return refuse(format!("{:?} is no media type", self.content_type));
        }
        let bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.headers.len() > limits::HEADERS_MAX || bytes > limits::HEADERS_BYTES_MAX {
            return refuse("it has more than 32 headers, or more than 16 KiB of them".to_owned());
        }
        for (name, value) in &self.headers {
            if HeaderName::from_bytes(name.as_bytes()).is_err() || HeaderValue::from_str(value).is_err() {
                return refuse(format!("the header {name:?} is no HTTP header"));
            }
            if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
                return refuse(format!(
                    "the header {name:?} is not part of a request: the vendor adds credentials when it sends"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a text is a kind.
pub(crate) fn is_kind(kind: &str) -> bool {
    let base = kind_base(kind);
    !base.is_empty() && kind.len() <= KIND_BYTES_MAX && !kind.chars().any(char::is_control)
}

/// Returns the kind without its qualifier, which labels metrics and names the operation of a vendor.
pub fn kind_base(kind: &str) -> &str {
    kind.split_once(':').map_or(kind, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_never_be_sent_is_refused_with_a_reason() {
        let fine = || EffectRequest::new("resend", "x");
        fine().target("/emails?a=1").header("x-a", "b").key("k").check("email.welcome:7").unwrap();
        let long = "k".repeat(256);
        for (request, kind, says) in [
            (fine(), "", "a kind is"),
            (fine(), ":7", "a kind is"),
            (fine(), "a\nb", "control characters"),
            (fine(), long.as_str(), "255 bytes"),
            (EffectRequest::new("", "x"), "a", "the vendor"),
            (fine().key(""), "a", "its key"),
            (fine().target("/a b"), "a", "its target"),
            (fine().target("/é"), "a", "its target"),
            (EffectRequest::new("v", vec![0; limits::PAYLOAD_BYTES_MAX + 1]), "a", "983,041 bytes"),
            (fine().method("GE T"), "a", "HTTP method"),
            (fine().method("CONNECT"), "a", "the method CONNECT"),
            (fine().method("TRACE"), "a", "the method TRACE"),
            (fine().content_type("a\nb"), "a", "media type"),
            (fine().header("a b", "c"), "a", "no HTTP header"),
            (fine().header("a", "b\r\nc: d"), "a", "no HTTP header"),
            (fine().header("Authorization", "Bearer x"), "a", "adds credentials"),
        ] {
            let error = request.check(kind).unwrap_err();
            let says = says.replace("983,041", "983041");
            assert!(error.to_string().contains(&says), "{error}");
        }
    }

    #[test]
    fn the_order_of_headers_makes_no_other_request() {
        let with = |names: [&str; 3]| {
            names.into_iter().fold(EffectRequest::new("v", "x"), |request, name| request.header(name, "1"))
        };
        assert!(with(["x-c", "x-a", "x-b"]).is_stored_like(&with(["x-b", "x-c", "x-a"])));
        assert!(!with(["x-c", "x-a", "x-b"]).is_stored_like(&with(["x-c", "x-a", "x-d"])));
        assert!(!with(["x-c", "x-a", "x-b"]).is_stored_like(&with(["x-c", "x-a", "x-a"])));
    }

    /// D27
    #[test]
    fn the_base_of_a_kind_has_no_qualifier() {
        assert_eq!(kind_base("webhook.paid:ep_42:x"), "webhook.paid");
        assert_eq!(kind_base("email.welcome"), "email.welcome");
    }
}
