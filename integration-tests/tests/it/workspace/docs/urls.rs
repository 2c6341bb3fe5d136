//! Each URL that a page or a recipe shows leads to this machine, or over TLS with a certificate that is
//! verified: what people copy is safe.
use super::{super::files, expect_none};
use sqlx::{MySql, Postgres};
use twinbox::Dialect;
use twinbox_core::endpoint::Endpoint;

/// Pages, and the files that people take over into their deployments.
const ENDS: [&str; 6] = [".md", ".service", ".toml", ".yaml", ".yml", "Containerfile"];

/// The URLs of a line. An ellipsis stands for all that follows it.
fn urls(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| c.is_whitespace() || "`\"'<>(),…\\".contains(c));
    words.filter_map(|word| {
        let (before, after) = word.split_once("://")?;
        let scheme = before.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
        (!after.is_empty()).then(|| word.split_at(scheme).1)
    })
}

/// Why a URL is not to be copied. `None`: it is, or it is none of ours.
fn refusal(url: &str) -> Option<String> {
    let protection = match url.split("://").next()? {
        "postgres" | "postgresql" => Postgres::protection(&url.parse().ok()?, false),
        "mysql" | "mariadb" => MySql::protection(&url.parse().ok()?, false),
        "http" | "https" | "nats" | "tls" => Endpoint::of_url(url)?.protection("write `https` or `tls`"),
        _ => return None,
    };
    protection.err().map(|refused| refused.to_string())
}

#[test]
fn every_url_of_pages_and_recipes_has_tls_or_stays_on_this_machine() {
    let (mut looked_at, mut faults) = (0, Vec::new());
    for (name, text) in files::texts().filter(|(name, _)| ENDS.iter().any(|end| name.ends_with(end))) {
        for (number, line) in (1..).zip(text.lines()) {
            for url in urls(line) {
                looked_at += 1;
                faults.extend(refusal(url).map(|refused| format!("{name}:{number} {url}: {refused}")));
            }
        }
    }
    assert!(looked_at > 30, "{looked_at} URLs");
    expect_none("these URLs would be without verified TLS", &faults);
}

#[test]
fn urls_are_found_and_judged() {
    let line = "A='postgres://me@db/shop?sslmode=require' # `nats://a,tls://b`, mysql://…, http://[::1]";
    let found = Vec::from_iter(urls(line));
    assert_eq!(found, ["postgres://me@db/shop?sslmode=require", "nats://a", "tls://b", "http://[::1]"]);
    let refused = Vec::from_iter(found.into_iter().map(|url| refusal(url).is_some()));
    assert_eq!(refused, [true, true, false, false]);
    assert!(refusal("mysql://db/shop?ssl-mode=REQUIRED").is_some());
    for good in ["mysql://db/shop?ssl-mode=VERIFY_IDENTITY", "postgres://db/shop?sslmode=verify-full"] {
        assert_eq!(refusal(good), None, "{good}");
    }
}
