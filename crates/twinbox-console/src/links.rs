//! Addresses of pages.
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What may stand in a query as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a path with a query. Parts without a value are left out.
pub(crate) fn link(path: &str, parts: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    for (name, value) in parts.iter().filter(|(_, value)| !value.is_empty()) {
        out += if out.len() == path.len() { "?" } else { "&" };
        out += name;
        out += "=";
        out.extend(utf8_percent_encode(value, PLAIN));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_within_its_part_of_an_address() {
        assert_eq!(link("/keys", &[]), "/keys");
        assert_eq!(link("/keys", &[("key", ""), ("a", "x")]), "/keys?a=x");
        assert_eq!(
            link("/keys", &[("key", "a&b=c#\"<é\n"), ("n", "1")]),
            "/keys?key=a%26b%3Dc%23%22%3C%C3%A9%0A&n=1"
        );
    }
}
