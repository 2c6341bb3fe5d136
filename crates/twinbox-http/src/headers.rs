//! Response headers: this crate's own, and the stored ones.
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

pub(crate) const STATUS: HeaderName = HeaderName::from_static("idempotency-status");
pub(crate) const BODY: HeaderName = HeaderName::from_static("idempotency-body");

/// The headers that a browser may read, for `Access-Control-Expose-Headers`.
pub const EXPOSED_HEADERS: [HeaderName; 3] = [STATUS, BODY, header::RETRY_AFTER];

/// Always stored and replayed. None of these belongs to one connection, one moment or one caller's session.
const STORED: [HeaderName; 10] = [
    header::CONTENT_TYPE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_ENCODING,
    header::LOCATION,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    HeaderName::from_static("deprecation"),
    HeaderName::from_static("sunset"),
];

/// Never stored, even if the application asks for it.
const NEVER_STORED: [HeaderName; 20] = [
    header::SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    header::COOKIE,
    HeaderName::from_static("clear-site-data"),
    header::AUTHORIZATION,
    header::WWW_AUTHENTICATE,
    header::RETRY_AFTER,
    header::CONTENT_LENGTH,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    HeaderName::from_static("authentication-info"),
    HeaderName::from_static("keep-alive"),
    header::DATE,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    STATUS,
    BODY,
];

/// Whether the application may add the header to the stored ones.
pub(crate) fn may_be_added(name: &HeaderName) -> bool {
    !STORED.contains(name)
        && !NEVER_STORED.contains(name)
        && !name.as_str().starts_with("proxy-")
        && !name.as_str().trim_start_matches("x-").starts_with("ratelimit")
}

/// Removes this crate's response headers from a request, so that no handler trusts a caller's copy of them.
pub(crate) fn strip(request: &mut HeaderMap) {
    for name in [STATUS, BODY] {
        request.remove(name);
    }
}

/// Encodes the stored headers as pairs of name and value. A big-endian `u32` length precedes each, because a
/// value may hold any bytes.
pub(crate) fn encode(all: &HeaderMap, added: &[HeaderName]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |part: &[u8]| {
        bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    for name in STORED.iter().chain(added) {
        for value in all.get_all(name) {
            put(name.as_str().as_bytes());
            put(value.as_bytes());
        }
    }
    bytes
}

/// Decodes stored headers, without those that the route does not store: an earlier build may have stored
/// others, and whoever can write the row may have added a cookie. `None` if [`encode`] did not write the
/// bytes.
pub(crate) fn decode(mut bytes: &[u8], added: &[HeaderName]) -> Option<HeaderMap> {
    let mut all = HeaderMap::new();
    while !bytes.is_empty() {
        let name = HeaderName::from_bytes(take(&mut bytes)?).ok()?;
        let value = HeaderValue::from_bytes(take(&mut bytes)?).ok()?;
        if STORED.contains(&name) || added.contains(&name) {
            all.try_append(name, value).ok()?;
        }
    }
    Some(all)
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// t20
    #[test]
    fn stored_headers_come_back_and_no_others() {
        let mut all = HeaderMap::new();
        let added = HeaderName::from_static("x-payment");
        for (name, value) in [
            ("content-type", &b"application/json"[..]),
            ("link", b"</a>; rel=a"),
            ("link", b"</b>; rel=b"),
            ("x-payment", b"\xff\xfe"),
            ("set-cookie", b"a=1"),
            ("date", b"now"),
            ("traceparent", b"00-"),
        ] {
            all.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        let stored = encode(&all, std::slice::from_ref(&added));
        for never_stored in ["set-cookie", "date", "traceparent"] {
            all.remove(never_stored);
        }
        assert_eq!(decode(&stored, std::slice::from_ref(&added)), Some(all.clone()));
        assert_eq!(decode(b"", &[]), Some(HeaderMap::new()));
        // Another build stores fewer.
        all.remove(&added);
        assert_eq!(decode(&stored, &[]), Some(all));
        for garbage in
            [&b"\0"[..], b"\0\0\0\x05ab", b"\xff\xff\xff\xffab", b"\0\0\0\x01a", &stored[..stored.len() - 1]]
        {
            assert_eq!(decode(garbage, &[]), None);
        }
    }

    #[test]
    fn a_row_brings_back_no_header_that_is_never_stored() {
        let mut forged = HeaderMap::new();
        for name in NEVER_STORED {
            forged.insert(name, HeaderValue::from_static("eve"));
        }
        for name in
            ["proxy-authenticate", "proxy-connection", "x-accel-redirect", "access-control-allow-origin"]
        {
            forged.insert(HeaderName::from_static(name), HeaderValue::from_static("eve"));
        }
        let names = Vec::from_iter(forged.keys().cloned());
        assert_eq!(decode(&encode(&forged, &names), &[]), Some(HeaderMap::new()));
        assert!(NEVER_STORED.iter().all(|name| !may_be_added(name)));
        assert!(!may_be_added(&HeaderName::from_static("proxy-connection")));
        assert!(may_be_added(&HeaderName::from_static("x-payment")));
    }
}
