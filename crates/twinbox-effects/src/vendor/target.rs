//! Where a request goes: the base URL of a vendor, and a target behind it.
use http::Uri;
use percent_encoding::percent_decode;
use std::borrow::Cow;
use twinbox_sql::{Error, ErrorKind};

/// How often a segment is decoded. Some servers decode more than once.
const DECODINGS_MAX: usize = 4;

/// Checks that a base URL is absolute, and returns it without a `/` at its end.
pub(crate) fn base_url(url: String) -> Result<String, Error> {
    let parsed: Option<Uri> = url.parse().ok();
    if parsed.is_none_or(|url| url.scheme().is_none() || url.host().is_none() || url.query().is_some()) {
        let what = format!("the base URL {url:?} must be absolute, such as https://api.example.com/v1");
        return Err(Error::new(ErrorKind::Configuration, what));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Whether a target stays behind its base URL: empty, a path, or a query. `@` or `.` would change the host,
/// and clients and servers take a segment `..`, in whatever spelling, for a step out of the base path.
pub(crate) fn is_path(target: &str) -> bool {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    match path.strip_prefix('/') {
        None => path.is_empty(),
        Some(rest) => !rest.starts_with('/') && !is_step(path),
    }
}

/// Whether a path has a segment `.` or `..`, or a backslash, which some take for a slash.
fn is_step(path: &str) -> bool {
    let mut path = Cow::Borrowed(path.as_bytes());
    for _ in 0..DECODINGS_MAX {
        let mut segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
        // Some servers cut parameters off: `..;a=1`.
        let name = |segment: &[u8]| segment.split(|byte| *byte == b';').next().unwrap_or_default().to_vec();
        if path.contains(&b'\\') || segments.any(|segment| matches!(&*name(segment), b"." | b"..")) {
            return true;
        }
        let decoded = percent_decode(&path).collect::<Vec<u8>>();
        if decoded == *path {
            return false;
        }
        path = decoded.into();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_stays_behind_its_base_url() {
        for good in
            ["", "/", "/a/b", "?a=..", "/a?b=/../c", "/a#/..", "/a.b/..c/.d", "/50%25", "/a;b", "/%zz"]
        {
            assert!(is_path(good), "{good}");
        }
        for bad in [
            "a",
            "@evil.example",
            ".evil.example",
            ":8080/",
            "//evil.example/",
            "/../tenant-b",
            "/a/..",
            "/./a",
            "/%2e%2e/tenant-b",
            "/.%2E/tenant-b",
            "/a%2f..%2fb",
            "/%252e%252e/b",
            "/%25252525252e%2e/b",
            "/..;a=1/b",
            "/a\\..\\b",
            "/a%5c..",
        ] {
            assert!(!is_path(bad), "{bad}");
        }
    }

    #[test]
    fn a_base_url_is_absolute() {
        assert_eq!(base_url("https://a.example/v1/".to_owned()).unwrap(), "https://a.example/v1");
        for bad in ["", "/v1", "a.example", "https://a.example/?b=c"] {
            base_url(bad.to_owned()).unwrap_err();
        }
    }
}
