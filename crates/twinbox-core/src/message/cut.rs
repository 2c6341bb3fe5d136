//! Messages of which only the beginning of the payload is kept.
use super::{Message, header};
use bytes::Bytes;

impl Message {
    /// Returns whether the payload is only the beginning of one that could not be read. The header
    /// [`CUT`](header::CUT) has the size of the whole one.
    ///
    /// A source cuts the payload of a message that it cannot read. The dead letter is not redriven, so that
    /// no handler runs on a beginning.
    pub fn is_cut(&self) -> bool {
        self.header(header::CUT).is_some()
    }

    /// Keeps at most the first `bytes_max` bytes of the payload, and frees the memory of the rest. Does
    /// nothing to a shorter payload.
    pub fn cut_payload(&mut self, bytes_max: usize) {
        let whole = self.payload.len();
        if whole <= bytes_max {
            return;
        }
        // A slice would keep the memory of the whole payload.
        self.payload = Bytes::copy_from_slice(&self.payload[..bytes_max]);
        if !self.is_cut() {
            self.headers.push((header::CUT.to_owned(), whole.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::Timestamp;

    #[test]
    fn a_payload_that_is_cut_says_how_long_it_was() {
        let (id, source) = ("1".to_owned(), "queue".to_owned());
        let mut message = Message::placeholder(id, source, Timestamp::from_micros(0), "12345".into());
        message.cut_payload(5);
        assert!(!message.is_cut() && message.headers.is_empty());
        for left in [4, 2] {
            message.cut_payload(left);
            assert_eq!((message.payload.len(), message.header("twinbox-cut")), (left, Some("5")));
        }
        assert!(message.is_cut() && message.headers.len() == 1);
    }
}
