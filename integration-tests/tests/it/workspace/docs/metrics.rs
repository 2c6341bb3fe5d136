//! The page of metrics has every metric of the code, and no other.
use super::super::files;
use std::collections::BTreeSet;

const PAGE: &str = "docs/src/metrics.md";

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

#[test]
fn the_page_of_metrics_has_every_metric_and_no_other() {
    let texts: Vec<_> = files::texts().collect();
    let code = texts.iter().filter(|(name, _)| name.starts_with("crates/") && name.ends_with(".rs"));
    let mut used = BTreeSet::new();
    for (_, text) in code {
        used.extend(names(text, '"'));
    }
    let page = texts.iter().find(|(name, _)| name == PAGE).map(|(_, text)| names(text, '`')).unwrap();
    assert!(used.contains("twinbox_relay_lag_seconds") && used.len() > 50, "{used:?}");
    let unknown: Vec<_> = page.difference(&used).collect();
    let missing: Vec<_> = used.difference(&page).collect();
    assert!(unknown.is_empty() && missing.is_empty(), "{PAGE} lacks {missing:?} and invents {unknown:?}");
}
