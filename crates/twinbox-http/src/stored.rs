//! A response as it is stored, and back.
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// What of a response is stored with it. Never what is of one connection, one moment or one caller's session.
const KEPT: [HeaderName; 10] = [
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

/// What is never stored, whoever asks for it.
const NEVER: [HeaderName; 17] = [
    header::SET_COOKIE,
    header::AUTHORIZATION,
    header::WWW_AUTHENTICATE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::RETRY_AFTER,
    header::CONTENT_LENGTH,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    HeaderName::from_static("authentication-info"),
    HeaderName::from_static("proxy-authentication-info"),
    HeaderName::from_static("keep-alive"),
    header::DATE,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("traceparent"),
];

/// Whether the application may have it kept, and it is not kept anyway.
pub(crate) fn may_be_kept(name: &HeaderName) -> bool {
    !KEPT.contains(name)
        && !NEVER.contains(name)
        && !name.as_str().trim_start_matches("x-").starts_with("ratelimit")
}

/// Name, length and value of each, whatever bytes a value has: the lengths as big-endian u32.
pub(crate) fn headers(all: &HeaderMap, also: &[HeaderName]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |part: &[u8]| {
        bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    for name in KEPT.iter().chain(also) {
        for value in all.get_all(name) {
            put(name.as_str().as_bytes());
            put(value.as_bytes());
        }
    }
    bytes
}

/// None: it was not written by [`headers`].
pub(crate) fn read_headers(mut bytes: &[u8]) -> Option<HeaderMap> {
    let mut all = HeaderMap::new();
    while !bytes.is_empty() {
        let name = HeaderName::from_bytes(take(&mut bytes)?).ok()?;
        all.append(name, HeaderValue::from_bytes(take(&mut bytes)?).ok()?);
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

    /// REQUIREMENTS §5, 20
    #[test]
    fn what_is_kept_comes_back_and_nothing_else() {
        let mut all = HeaderMap::new();
        let also = HeaderName::from_static("x-payment");
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
        let stored = headers(&all, std::slice::from_ref(&also));
        for gone in ["set-cookie", "date", "traceparent"] {
            all.remove(gone);
        }
        assert_eq!(read_headers(&stored), Some(all));
        assert_eq!(read_headers(b""), Some(HeaderMap::new()));
        for garbage in
            [&b"\0"[..], b"\0\0\0\x05ab", b"\xff\xff\xff\xffab", b"\0\0\0\x01a", &stored[..stored.len() - 1]]
        {
            assert_eq!(read_headers(garbage), None);
        }
    }
}
