//! The names under which browsers may reach the console.
use axum::http::{HeaderMap, header};
use std::net::IpAddr;

/// Whether a request is for one of our names. Another site may lead its own name to this machine, and would
/// then be the same origin for a browser.
pub(crate) fn is_ours(headers: &HeaderMap, hosts: &[String]) -> bool {
    let Some(host) = host(headers) else { return false };
    let name = without_port(&host);
    is_here(name) || hosts.iter().any(|ours| *ours == host || *ours == name)
}

/// Whether a browser on this machine asks. Others get cookies over TLS alone.
pub(crate) fn is_from_here(headers: &HeaderMap, peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback() && host(headers).is_some_and(|host| is_here(without_port(&host)))
}

fn host(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(header::HOST)?.to_str().ok()?.to_ascii_lowercase())
}

fn is_here(name: &str) -> bool {
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a change comes from a page of ours.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
        return site == "same-origin";
    }
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else { return false };
    origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn names_of_others_are_refused() {
        let ours = ["console.example.org".to_owned(), "ops:8443".to_owned()];
        for (host, is) in [
            ("127.0.0.1:4080", true),
            ("localhost", true),
            ("LOCALHOST:1", true),
            ("[::1]:4080", true),
            ("console.example.org:99", true),
            ("ops:8443", true),
            ("ops:1", false),
            ("evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(is_ours(&headers(&[("host", host)]), &ours), is, "{host}");
        }
        assert!(!is_ours(&HeaderMap::new(), &ours));
    }

    #[test]
    fn only_a_browser_on_this_machine_gets_a_cookie_without_tls() {
        let (here, elsewhere) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 0, 0, 1]));
        assert!(is_from_here(&headers(&[("host", "localhost:4080")]), here));
        assert!(!is_from_here(&headers(&[("host", "localhost:4080")]), elsewhere));
        // A proxy on this machine.
        assert!(!is_from_here(&headers(&[("host", "console.example.org")]), here));
    }

    #[test]
    fn a_change_comes_from_our_pages_alone() {
        let host = ("host", "localhost:1");
        for (pairs, is) in [
            (&[host, ("sec-fetch-site", "same-origin")][..], true),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://localhost:1")], false),
            (&[host, ("origin", "http://localhost:1")], true),
            (&[host, ("origin", "http://localhost:2")], false),
            (&[host, ("origin", "null")], false),
            (&[host], false),
        ] {
            assert_eq!(is_same_origin(&headers(pairs)), is, "{pairs:?}");
        }
    }
}
