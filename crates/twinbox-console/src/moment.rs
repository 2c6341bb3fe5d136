//! Times and texts in pages.
use std::fmt;
use twinbox_ops::Timestamp;

/// A time in a page. A script shows it in the zone of the reader; without one it is UTC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(pub(crate) Timestamp);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.0.to_string();
        let seconds = exact.split(['.', 'Z']).next().unwrap_or(&exact).replace('T', " ");
        write!(f, r#"<time datetime="{exact}" title="{seconds} UTC">{seconds} UTC</time>"#)
    }
}

/// Its text has digits and fixed words alone.
impl askama::filters::HtmlSafe for Moment {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_for_people_and_for_programs() {
        let moment = Moment(Timestamp::parse("2026-11-22T14:57:39.909175Z").unwrap());
        assert_eq!(
            moment.to_string(),
            r#"<time datetime="2026-11-22T14:57:39.909175Z" title="2026-11-22 14:57:39 UTC">"#.to_owned()
                + "2026-11-22 14:57:39 UTC</time>"
        );
    }
}
