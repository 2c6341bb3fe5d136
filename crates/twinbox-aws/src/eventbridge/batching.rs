//! Splits a batch of events into requests.
use std::{collections::HashSet, ops::Range};

/// The size and the key of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) bytes: usize,
    pub(crate) key: Option<&'a str>,
}

/// The limits of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// Returns the requests as ranges of `items`, in order.
///
/// A range ends before an item that would break a limit, or whose key is already in the range. An item beyond
/// the limit of bytes has a range of its own.
pub(crate) fn split(items: &[Item<'_>], limits: Limits) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes, mut keys) = (0, 0, HashSet::new());
    for (at, item) in items.iter().enumerate() {
        let is_full = at - start == limits.entries || bytes + item.bytes > limits.bytes;
        let is_repeated = item.key.is_some_and(|key| keys.contains(key));
        if at > start && (is_full || is_repeated) {
            ranges.push(start..at);
            (start, bytes) = (at, 0);
            keys.clear();
        }
        bytes += item.bytes;
        keys.extend(item.key);
    }
    if start < items.len() {
        ranges.push(start..items.len());
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, option, prelude::*};

    fn ranges(items: &[(usize, Option<&str>)]) -> Vec<Range<usize>> {
        let items: Vec<_> = items.iter().map(|&(bytes, key)| Item { bytes, key }).collect();
        split(&items, Limits { entries: 3, bytes: 100 })
    }

    #[test]
    fn a_request_ends_at_a_limit_or_a_repeated_key() {
        assert!(ranges(&[]).is_empty());
        assert_eq!(ranges(&[(1, None); 7]), [0..3, 3..6, 6..7]);
        assert_eq!(ranges(&[(60, None), (40, None), (1, None)]), [0..2, 2..3]);
        assert_eq!(ranges(&[(1, Some("a")), (1, Some("b")), (1, Some("a"))]), [0..2, 2..3]);
        assert_eq!(ranges(&[(1, None), (101, None), (1, None)]), [0..1, 1..2, 2..3]);
    }

    proptest! {
        /// Every message is in exactly one request, in order. No request breaks a limit or holds a key twice,
        /// and none could have taken the first message of the next one.
        #[test]
        fn splitting_loses_nothing_and_breaks_no_limit(
            items in vec((14_usize..400, option::of("[a-e]")), 0..60),
            entries in 1_usize..=100,
        ) {
            let limits = Limits { entries, bytes: 1000 };
            let items: Vec<_> =
                items.iter().map(|(bytes, key)| Item { bytes: *bytes, key: key.as_deref() }).collect();
            let ranges = split(&items, limits);
            prop_assert!(ranges.iter().cloned().flatten().eq(0..items.len()));
            let fits = |request: &[Item<'_>]| {
                let keys: Vec<_> = request.iter().filter_map(|item| item.key).collect();
                request.len() <= entries
                    && request.iter().map(|item| item.bytes).sum::<usize>() <= limits.bytes
                    && keys.iter().collect::<HashSet<_>>().len() == keys.len()
            };
            for range in &ranges {
                prop_assert!(!range.is_empty() && fits(&items[range.clone()]));
                prop_assert!(range.end == items.len() || !fits(&items[range.start..=range.end]));
            }
        }
    }
}
