//! Lists of dead letters, the newest first.
use super::groups::END;
use crate::Ops;
use std::fmt;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterOwner, Place, find, page_before},
};

/// Dead letters that one statement reads.
const PAGE: u32 = 500;
/// The most dead letters that one call of [`Ops::dead_letters`] looks at.
pub const DEAD_LETTERS_SCANNED_MAX: u32 = 1_000;

/// The result of [`Ops::dead_letters`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterPage {
    /// The dead letters that match, the newest first.
    pub dead_letters: Vec<DeadLetter>,
    /// The place before which the next page begins. None: there are no older ones.
    pub next: Option<DeadLetterPlace>,
    /// Up to which time the dead letters were looked at, if that was the end before the page was full.
    pub stopped_at: Option<Timestamp>,
}

/// A place in the list of [`Ops::dead_letters`]. Its text is `MICROSECONDS.NUMBER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterPlace(Place);

impl fmt::Display for DeadLetterPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.time.as_micros(), self.0.number)
    }
}

impl std::str::FromStr for DeadLetterPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('.').and_then(|(time, number)| {
            let time = Timestamp::from_micros(time.parse().ok()?);
            Some(Self(Place { time: time.min(END.time), number: number.parse().ok()? }))
        });
        parsed.ok_or_else(|| format!("{text:?} is no place in a list of dead letters"))
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Returns up to `limit` dead letters of one owner that match a filter, the newest first, without their
    /// messages. `before`: the [`next`](DeadLetterPage::next) of the page before.
    ///
    /// Reads backwards in an index, at most [`DEAD_LETTERS_SCANNED_MAX`] dead letters: of a consumer, within
    /// the times of the filter. A page that is not full may therefore have a `next`. A filter that names ids
    /// leads to these alone, on one page.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letters(
        &self,
        owner: &DeadLetterOwner,
        filter: &DeadLetterFilter,
        before: Option<DeadLetterPlace>,
        limit: usize,
    ) -> Result<DeadLetterPage, Error> {
        if !filter.ids.is_empty() {
            return self.dead_letters_by_id(owner, filter).await;
        }
        // Dead letters of a consumer are in the order of their times.
        let by_time = matches!(owner, DeadLetterOwner::Consumer(_));
        let newest = match filter.until {
            Some(until) if by_time => Place { time: until.min(END.time), ..END },
            _ => END,
        };
        let (mut dead_letters, mut place) = (Vec::new(), before.map_or(newest, |before| before.0));
        let (mut conn, mut scanned) = (self.engine.connection().await?, 0);
        // Without a condition beyond the group, no more is read than is shown.
        let size = match DeadLetterFilter::of(owner).with_group_of(filter) == *filter {
            true => u32::try_from(limit).unwrap_or(PAGE).saturating_add(1).min(PAGE),
            false => PAGE,
        };
        while scanned < DEAD_LETTERS_SCANNED_MAX {
            let page = page_before(&self.engine, &mut conn, owner, filter.group(), place, size).await?;
            scanned += size;
            let is_older = |one: &DeadLetter| filter.since.is_some_and(|since| one.given_up_at < since);
            let is_last = page.len() < size as usize || by_time && page.last().is_some_and(is_older);
            for dead_letter in page {
                if dead_letters.len() == limit {
                    conn.done().await?;
                    return Ok(DeadLetterPage {
                        dead_letters,
                        next: Some(DeadLetterPlace(place)),
                        stopped_at: None,
                    });
                }
                place = Place::of(&dead_letter);
                if filter.matches(&dead_letter) {
                    dead_letters.push(dead_letter);
                }
            }
            if is_last {
                conn.done().await?;
                return Ok(DeadLetterPage { dead_letters, next: None, stopped_at: None });
            }
        }
        conn.done().await?;
        let (next, stopped_at) = (Some(DeadLetterPlace(place)), Some(place.time));
        Ok(DeadLetterPage { dead_letters, next, stopped_at })
    }

    async fn dead_letters_by_id(
        &self,
        owner: &DeadLetterOwner,
        filter: &DeadLetterFilter,
    ) -> Result<DeadLetterPage, Error> {
        let (of_owner, mut dead_letters) = (DeadLetterFilter::of(owner), Vec::new());
        for id in &filter.ids {
            let found = self.dead_letter(id).await?;
            dead_letters.extend(found.filter(|one| of_owner.matches(one) && filter.matches(one)));
        }
        Ok(DeadLetterPage { dead_letters, next: None, stopped_at: None })
    }

    /// Returns one dead letter without its message. None: there is none with this id.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letter(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, Error> {
        find(&self.engine, id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let place = DeadLetterPlace(Place { time: Timestamp::from_micros(1_700_000), number: 7 });
        assert_eq!(place.to_string().parse(), Ok(place));
        for bad in ["", "7", ".", "7.", ".7", "a.b"] {
            assert!(bad.parse::<DeadLetterPlace>().is_err(), "{bad}");
        }
        assert_eq!("9223372036854775807.1".parse::<DeadLetterPlace>().unwrap().0.time, END.time);
    }
}
