//! Where a request goes: the base URL of a vendor, and a target behind it.
use http::Uri;
use percent_encoding::percent_decode;
use std::borrow::Cow;
use twinbox_core::endpoint::Endpoint;
use twinbox_sql::{Error, ErrorKind};

/// How often a segment is decoded. Some servers decode more than once.
const DECODINGS_MAX: usize = 4;

/// Checks a base URL, and returns it without a `/` at its end. It has to be absolute, and without TLS it has
/// to lead to this machine, unless it `may_be_plain`.
pub(crate) fn base_url(url: String, may_be_plain: bool) -> Result<String, Error> {
    let wrong = |what: String| Error::new(ErrorKind::Configuration, what);
    let parsed: Option<Uri> = url.parse().ok();
    let is_fit = |url: &Uri| {
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        url.scheme().is_some() && url.host().is_some() && url.query().is_none() && !has_user
    };
    let parsed = parsed.filter(is_fit);
    let Some(endpoint) = parsed.and_then(|_| Endpoint::of_url(&url)) else {
        let what = "the base URL must be absolute and have no user and no query, such as \
                    https://api.example.com/v1";
        return Err(wrong(what.to_owned()));
    };
    endpoint
        .allow_plain(may_be_plain)
        .protection("write `https://`")
        .map_err(|refused| wrong(format!("{refused}, or use `plain` in place of `new`")))?;
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
        assert_eq!(base_url("https://a.example/v1/".to_owned(), false).unwrap(), "https://a.example/v1");
        for bad in ["", "/v1", "a.example", "https://a.example/?b=secret", "https://me:secret@a.example"] {
            let refused = base_url(bad.to_owned(), true).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn a_base_url_leaves_the_machine_over_tls_unless_it_may_be_plain() {
        for here in ["http://localhost:8080", "http://127.0.0.1", "http://[::1]:8080/v1"] {
            assert_eq!(base_url(here.to_owned(), false).unwrap(), here);
        }
        for there in ["http://a.example/v1", "http://10.0.0.1", "http://127.1:8080"] {
            let error = base_url(there.to_owned(), false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains("write `https://`, or use `plain`"), "{error}");
            assert_eq!(base_url(there.to_owned(), true).unwrap(), there);
        }
    }
}
