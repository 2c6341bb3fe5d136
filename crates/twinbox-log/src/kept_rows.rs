//! The rows of a page, as many as there is memory for.
use crate::options::PAGE_BYTES;
use twinbox_core::Message;

/// The most bytes of the rows of one page. One row may be larger.
const ROWS_BYTES_MAX: usize = 2 * PAGE_BYTES;

/// The rows that come from a query, in any order. If they have too many bytes, those with the highest
/// positions are left for the next page.
#[derive(Default)]
pub(crate) struct KeptRows {
    rows: Vec<(i64, Box<Message>)>,
    bytes: usize,
    /// The lowest position that is left for the next page.
    cut_at: Option<i64>,
}

impl KeptRows {
    pub(crate) fn push(&mut self, position: i64, message: Box<Message>) {
        if self.cut_at.is_some_and(|cut_at| position >= cut_at) {
            return;
        }
        self.bytes = self.bytes.saturating_add(message.bytes());
        self.rows.push((position, message));
        if self.bytes > ROWS_BYTES_MAX {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.rows.sort_by_key(|(position, _)| *position);
        while self.bytes > PAGE_BYTES
            && self.rows.len() > 1
            && let Some((position, message)) = self.rows.pop()
        {
            self.bytes -= message.bytes();
            self.cut_at = Some(position);
        }
    }

    /// Returns the rows in order, and whether some are left for the next page.
    pub(crate) fn finish(mut self) -> (Vec<(i64, Box<Message>)>, bool) {
        self.rows.sort_by_key(|(position, _)| *position);
        (self.rows, self.cut_at.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinbox_core::Draft;

    fn kept(rows: impl IntoIterator<Item = (i64, usize)>) -> (Vec<i64>, bool) {
        let mut kept = KeptRows::default();
        for (position, bytes) in rows {
            kept.push(position, Box::new(Draft::raw("t", 1, vec![b'x'; bytes]).into_message("shop")));
            assert!(kept.rows.len() == 1 || kept.bytes <= ROWS_BYTES_MAX);
        }
        let (rows, is_cut) = kept.finish();
        (rows.into_iter().map(|(position, _)| position).collect(), is_cut)
    }

    #[test]
    fn a_page_of_small_messages_is_kept_whole_and_in_order() {
        assert_eq!(kept([(3, 10), (1, 10), (2, 10)]), (vec![1, 2, 3], false));
    }

    #[test]
    fn large_messages_leave_a_page_without_gaps_whatever_their_order() {
        let megabyte = 1024 * 1024;
        for is_reversed in [false, true] {
            let mut rows = Vec::from_iter((1..=100).map(|n| (n, if n % 2 == 0 { megabyte } else { 10 })));
            if is_reversed {
                rows.reverse();
            }
            let (positions, is_cut) = kept(rows);
            assert!(is_cut && positions.len() >= 6 && positions.len() < 20, "{}", positions.len());
            assert_eq!(positions, Vec::from_iter(1..=i64::try_from(positions.len()).unwrap()));
        }
    }

    #[test]
    fn a_message_larger_than_a_page_goes_alone() {
        assert_eq!(kept([(2, 10), (1, 3 * ROWS_BYTES_MAX), (3, 10)]), (vec![1], true));
    }
}
