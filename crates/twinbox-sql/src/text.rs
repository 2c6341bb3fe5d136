//! What a text column takes.
use std::borrow::Cow;
use twinbox_core::limits;

/// A text as the database keeps it: Postgres has no NUL.
pub fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// As digests are read.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An error text within its bound.
pub(crate) fn bounded(error: &str) -> String {
    // Cut twice: what stands for a NUL is longer, and the rest need not be searched for one.
    let error = text(cut(error));
    cut(&error).to_owned()
}

fn cut(error: &str) -> &str {
    &error[..error.floor_char_boundary(limits::ERROR_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_are_cut_between_characters() {
        let long = "é".repeat(limits::ERROR_BYTES_MAX);
        assert_eq!(bounded(&long).len(), limits::ERROR_BYTES_MAX);
        assert_eq!(bounded(&format!("a{long}")).len(), limits::ERROR_BYTES_MAX - 1);
        assert_eq!(bounded("a\0b"), "a\u{fffd}b");
        assert!(bounded(&"\0".repeat(limits::ERROR_BYTES_MAX)).len() <= limits::ERROR_BYTES_MAX);
    }
}
