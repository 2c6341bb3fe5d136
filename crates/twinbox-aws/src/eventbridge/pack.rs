//! Which events go into one request.
use std::{collections::HashSet, ops::Range};

/// Bytes that `Time` counts for.
const TIME_BYTES: usize = 14;

/// The size of an event as EventBridge counts it.
pub(crate) fn entry_bytes<'a>(
    source: &str,
    detail_type: &str,
    detail: &str,
    resources: impl IntoIterator<Item = &'a str>,
) -> usize {
    let resources: usize = resources.into_iter().map(str::len).sum();
    TIME_BYTES + source.len() + detail_type.len() + detail.len() + resources
}

/// What matters of an event for packing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) bytes: usize,
    pub(crate) key: Option<&'a str>,
}

/// Bounds of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// The requests, as runs of `items`, in order. A run ends where the next item breaks a bound or has a key
/// that is in the run already. An item that is too large alone is a run of its own.
pub(crate) fn pack(items: &[Item<'_>], bounds: Bounds) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let (mut start, mut bytes, mut keys) = (0, 0, HashSet::new());
    for (at, item) in items.iter().enumerate() {
        let full = at - start == bounds.entries || bytes + item.bytes > bounds.bytes;
        let repeated = item.key.is_some_and(|key| keys.contains(key));
        if at > start && (full || repeated) {
            runs.push(start..at);
            (start, bytes) = (at, 0);
            keys.clear();
        }
        bytes += item.bytes;
        keys.extend(item.key);
    }
    if start < items.len() {
        runs.push(start..items.len());
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, option, prelude::*};

    fn runs(items: &[(usize, Option<&str>)]) -> Vec<Range<usize>> {
        let items: Vec<_> = items.iter().map(|&(bytes, key)| Item { bytes, key }).collect();
        pack(&items, Bounds { entries: 3, bytes: 100 })
    }

    #[test]
    fn a_request_ends_at_a_bound_or_a_repeated_key() {
        assert!(runs(&[]).is_empty());
        assert_eq!(runs(&[(1, None); 7]), [0..3, 3..6, 6..7]);
        assert_eq!(runs(&[(60, None), (40, None), (1, None)]), [0..2, 2..3]);
        assert_eq!(runs(&[(1, Some("a")), (1, Some("b")), (1, Some("a"))]), [0..2, 2..3]);
        assert_eq!(runs(&[(1, None), (101, None), (1, None)]), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn an_entry_counts_as_eventbridge_says() {
        assert_eq!(
            entry_bytes("shop", "orders.placed", "{\"ü\":1}", ["arn:1", "arn:22"]),
            14 + 4 + 13 + 8 + 11
        );
    }

    proptest! {
        /// Every message is in exactly one request, in order; no request breaks a bound or holds a key
        /// twice; and no request could have taken the first message of the next one.
        #[test]
        fn packing_loses_nothing_and_breaks_no_bound(
            items in vec((14_usize..400, option::of("[a-e]")), 0..60),
            entries in 1_usize..=100,
        ) {
            let bounds = Bounds { entries, bytes: 1000 };
            let items: Vec<_> =
                items.iter().map(|(bytes, key)| Item { bytes: *bytes, key: key.as_deref() }).collect();
            let runs = pack(&items, bounds);
            prop_assert_eq!(runs.iter().cloned().flatten().collect::<Vec<_>>(), (0..items.len()).collect::<Vec<_>>());
            let fits = |run: &[Item<'_>]| {
                let keys: Vec<_> = run.iter().filter_map(|item| item.key).collect();
                run.len() <= entries
                    && run.iter().map(|item| item.bytes).sum::<usize>() <= bounds.bytes
                    && keys.iter().collect::<HashSet<_>>().len() == keys.len()
            };
            for run in &runs {
                prop_assert!(!run.is_empty() && fits(&items[run.clone()]));
                prop_assert!(run.end == items.len() || !fits(&items[run.start..=run.end]));
            }
        }
    }
}
