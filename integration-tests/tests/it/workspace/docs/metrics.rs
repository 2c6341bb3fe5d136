//! The page of metrics has every metric of the code, and no other. Other pages and the alerts name no other
//! either.
use super::{super::files, expect_none};
use std::collections::BTreeSet;

const PAGE: &str = "docs/src/metrics.md";
const DASHBOARD: &str = "crates/twinbox-relay/grafana/twinbox.json";
const ALERTS: &str = "crates/twinbox-relay/prometheus/alerts.yml";

/// The suffixes that Prometheus adds to the name of a histogram.
const SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Texts of the code that begin as a metric does and name something else.
const NO_METRICS: [&str; 1] = ["twinbox_manifest"];

/// The names between two marks of this kind that begin as a metric does.
fn names(text: &str, mark: char) -> BTreeSet<&str> {
    let is_name = |part: &&str| {
        part.strip_prefix("twinbox_").is_some_and(|rest| {
            !rest.is_empty()
                && rest.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                && !rest.ends_with('_')
        })
    };
    text.split(mark).filter(is_name).filter(|name| !NO_METRICS.contains(name)).collect()
}

/// Every metric of the code.
fn used(texts: &[(String, String)]) -> BTreeSet<&str> {
    let code = texts.iter().filter(|(name, _)| name.starts_with("crates/") && name.ends_with(".rs"));
    let used = BTreeSet::from_iter(code.flat_map(|(_, text)| names(text, '"')));
    assert!(used.contains("twinbox_relay_lag_seconds") && used.len() > 50, "{used:?}");
    used
}

/// The words of a text that begin as metrics do: `twinbox_relay_…`, but not `twinbox_outbox`.
fn words<'t>(text: &'t str, used: &BTreeSet<&str>) -> BTreeSet<&'t str> {
    // The length of `twinbox_relay_` in `twinbox_relay_lag_seconds`.
    let length = |name: &str| name.match_indices('_').nth(1).map_or(name.len(), |(at, _)| at + 1);
    let beginnings = BTreeSet::from_iter(used.iter().map(|name| &name[..length(name)]));
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| beginnings.iter().any(|beginning| word.starts_with(beginning))).collect()
}

/// Whether a word is a metric, a series of a histogram, or the beginning of metrics.
fn exists(word: &str, used: &BTreeSet<&str>) -> bool {
    let of_histogram = |suffix: &&str| word.strip_suffix(*suffix).is_some_and(|name| used.contains(name));
    let begins = word.ends_with('_') && used.iter().any(|name| name.starts_with(word));
    used.contains(word) || SUFFIXES.iter().any(of_histogram) || begins
}

#[test]
fn the_page_of_metrics_has_every_metric_and_no_other() {
    let texts = Vec::from_iter(files::texts());
    let used = used(&texts);
    let page = texts.iter().find(|(name, _)| name == PAGE).map(|(_, text)| names(text, '`')).unwrap();
    let unknown: Vec<_> = page.difference(&used).collect();
    let missing: Vec<_> = used.difference(&page).collect();
    assert!(unknown.is_empty() && missing.is_empty(), "{PAGE} lacks {missing:?} and invents {unknown:?}");
}

#[test]
fn every_metric_that_a_page_an_alert_or_a_dashboard_names_exists() {
    let texts = Vec::from_iter(files::texts());
    let used = used(&texts);
    let (mut named, mut faults) = (BTreeSet::new(), Vec::new());
    let is_named = |name: &str| name.ends_with(".md") || [ALERTS, DASHBOARD].contains(&name);
    for (name, text) in texts.iter().filter(|(name, _)| is_named(name)) {
        let words = words(text, &used);
        assert!(name.ends_with(".md") || words.len() > 10, "{name}: {words:?}");
        faults.extend(words.iter().filter(|word| !exists(word, &used)).map(|word| format!("{name}: {word}")));
        named.extend(words);
    }
    assert!(named.len() > 50, "{named:?}");
    expect_none("the code has no such metrics", &faults);
}

#[test]
fn words_that_begin_as_metrics_do_are_found() {
    let used = BTreeSet::from(["twinbox_relay_lag_seconds", "twinbox_http_key_wait_seconds"]);
    let text = "rate(twinbox_relay_lag_seconds_bucket[5m]) twinbox_outbox, twinbox_http_waits: twinbox_relay";
    let found = words(text, &used);
    assert_eq!(Vec::from_iter(&found), [&"twinbox_http_waits", &"twinbox_relay_lag_seconds_bucket"]);
    assert!(exists("twinbox_relay_lag_seconds_bucket", &used) && exists("twinbox_relay_", &used));
    assert!(!exists("twinbox_http_waits", &used) && !exists("twinbox_relay_l", &used));
}
