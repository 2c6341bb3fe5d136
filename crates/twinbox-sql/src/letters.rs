//! Dead letters of relays and consumers alike: what is there, by what it has in common, and what is to become of it.
//!
//! A consumer's letter is a message with its error, a relay's a message that its destination refused.
use crate::{
    Dialect, Error, ErrorKind, Store,
    micros::{Micros, micros},
    replay::unsigned,
    sql::query,
    text::hex,
};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};
use twinbox_core::{MessageId, Timestamp, TypePattern, crash};
use uuid::Uuid;

/// Letters that one statement reads.
const PAGE: i64 = 1000;
/// Letters that one transaction changes.
const CHANGED_AT_ONCE: usize = 200;

/// Which dead letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LetterId {
    /// Of a consumer. Written as a number.
    OfConsumer(i64),
    /// Of a destination, by the position of the message. Written `DESTINATION@POSITION`.
    OfDestination(String, i64),
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfConsumer(id) => write!(f, "{id}"),
            Self::OfDestination(destination, position) => write!(f, "{destination}@{position}"),
        }
    }
}

impl FromStr for LetterId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.rsplit_once('@') {
            Some((destination, position)) => {
                position.parse().ok().map(|position| Self::OfDestination(destination.to_owned(), position))
            }
            None => text.parse().ok().map(Self::OfConsumer),
        };
        parsed.ok_or_else(|| format!("{text:?} is no dead letter: write `12`, or `nats@345`"))
    }
}

/// What is told of a dead letter without reading its message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Letter {
    /// Which one.
    pub id: LetterId,
    /// Whose: the name of a consumer or of a destination.
    pub of: String,
    /// The message, as the inbox knows it.
    pub message_id: MessageId,
    /// The message, as its source knows it.
    pub event_id: String,
    /// Its source.
    pub source: String,
    /// Its type.
    pub event_type: String,
    /// Its key.
    pub key: Option<String>,
    /// Why it was given up.
    pub reason: String,
    /// The last error.
    pub error: String,
    /// Attempts that failed.
    pub attempts: u32,
    /// When the message was made.
    pub time: Timestamp,
    /// When it was given up.
    pub died_at: Timestamp,
    /// Whether it is to be tried again.
    pub redriven: bool,
}

impl Letter {
    /// The same for letters of one cause: of one consumer or destination, with one type and reason, and an error that
    /// differs in numbers and ids at most. 12 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new_with_prefix("letters/1");
        let sort = if matches!(self.id, LetterId::OfConsumer(_)) { "consumer" } else { "destination" };
        for part in [sort, &self.of, &self.event_type, &self.reason, &without_data(&self.error)] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        hex(&hash.finalize()[..6])
    }
}

/// An error text with what differs from message to message taken out: words with a digit in them, and what is quoted.
fn without_data(error: &str) -> String {
    let mut out = String::with_capacity(error.len());
    let mut quoted = false;
    for part in error.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_alphanumeric());
        let end = &part[word.len()..];
        if !quoted {
            out += if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word };
            out += end;
        }
        quoted ^= end == "\"";
    }
    out
}

/// Letters that have a cause in common.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LetterGroup {
    /// See [`Letter::fingerprint`].
    pub fingerprint: String,
    /// One of them: the newest.
    pub newest: Letter,
    /// How many.
    pub letters: u64,
    /// How many of them are to be tried again.
    pub redriven: u64,
    /// When the first of them was given up.
    pub first_died_at: Timestamp,
}

/// Which dead letters. All that is said has to hold. Default: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct LetterFilter {
    /// Of this consumer.
    pub consumer: Option<String>,
    /// Of this destination.
    pub destination: Option<String>,
    /// One of these.
    pub ids: Vec<LetterId>,
    /// Of this group: see [`Letter::fingerprint`], or how it begins.
    pub fingerprint: Option<String>,
    /// Of types that match one of these.
    pub types: Vec<TypePattern>,
    /// Of this key.
    pub key: Option<String>,
    /// Of the message with this event id or message id.
    pub message: Option<String>,
    /// Given up from this time on.
    pub since: Option<Timestamp>,
    /// Given up before this time.
    pub until: Option<Timestamp>,
}

impl LetterFilter {
    /// Whether the letter is one of them.
    pub fn takes(&self, letter: &Letter) -> bool {
        let is_consumers = matches!(letter.id, LetterId::OfConsumer(_));
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        (self.consumer.is_none() || is_consumers && is(&self.consumer, &letter.of))
            && (self.destination.is_none() || !is_consumers && is(&self.destination, &letter.of))
            && (self.ids.is_empty() || self.ids.contains(&letter.id))
            && (self.types.is_empty() || self.types.iter().any(|one| one.matches(&letter.event_type)))
            && (self.key.is_none() || self.key == letter.key)
            && self.since.is_none_or(|since| letter.died_at >= since)
            && self.until.is_none_or(|until| letter.died_at < until)
            && self.message.as_deref().is_none_or(|id| {
                id == letter.event_id || id.eq_ignore_ascii_case(&letter.message_id.to_string())
            })
            && self.fingerprint.as_deref().is_none_or(|begins| letter.fingerprint().starts_with(begins))
    }
}

impl<DB: Dialect> Store<DB> {
    /// Gives each dead letter that the filter takes to `see`, of consumers first, oldest first. Reads in pages of 1,000,
    /// without the messages.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn each_letter(&self, filter: &LetterFilter, mut see: impl FnMut(Letter)) -> Result<(), Error> {
        let statements = self.statements();
        let (mut after, mut full) = (0i64, filter.destination.is_none());
        while full {
            let mut conn = self.connection().await?;
            let page = query::<DB>(&statements.letters_page).bind(after).bind(PAGE);
            let page = page.fetch_all(&mut *conn).await?;
            conn.done().await?;
            full = page.len() as i64 == PAGE;
            for row in &page {
                after = row.try_get(0)?;
                let letter = read::<DB>(row, LetterId::OfConsumer(after), row.try_get(1)?)?;
                if filter.takes(&letter) {
                    see(letter);
                }
            }
        }
        let (mut destination, mut position) = (String::new(), 0i64);
        full = filter.consumer.is_none();
        while full {
            let mut conn = self.connection().await?;
            let page =
                query::<DB>(&statements.given_up_page).bind(destination.clone()).bind(position).bind(PAGE);
            let page = page.fetch_all(&mut *conn).await?;
            conn.done().await?;
            full = page.len() as i64 == PAGE;
            for row in &page {
                (destination, position) = (row.try_get(1)?, row.try_get(0)?);
                let id = LetterId::OfDestination(destination.clone(), position);
                let mut letter = read::<DB>(row, id, destination.clone())?;
                if letter.source.is_empty() {
                    self.service().clone_into(&mut letter.source);
                    letter.message_id = MessageId::of(&letter.source, &letter.event_id);
                }
                if filter.takes(&letter) {
                    see(letter);
                }
            }
        }
        Ok(())
    }

    /// Dead letters by what they have in common, the largest group first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn letter_groups(&self, filter: &LetterFilter) -> Result<Vec<LetterGroup>, Error> {
        let mut groups: BTreeMap<String, LetterGroup> = BTreeMap::new();
        self.each_letter(filter, |letter| {
            let fingerprint = letter.fingerprint();
            let group = groups.entry(fingerprint.clone()).or_insert_with(|| LetterGroup {
                fingerprint,
                newest: letter.clone(),
                letters: 0,
                redriven: 0,
                first_died_at: letter.died_at,
            });
            group.letters += 1;
            group.redriven += u64::from(letter.redriven);
            group.first_died_at = group.first_died_at.min(letter.died_at);
            if letter.died_at >= group.newest.died_at {
                group.newest = letter;
            }
        })
        .await?;
        let mut groups = Vec::from_iter(groups.into_values());
        groups.sort_by(|a, b| b.letters.cmp(&a.letters).then_with(|| a.fingerprint.cmp(&b.fingerprint)));
        Ok(groups)
    }

    /// Tries dead letters again, one each `spacing`: a consumer's in any process that runs it, within a few seconds and up
    /// to [`REDRIVE_ATTEMPTS`](crate::inbox::REDRIVE_ATTEMPTS) times; a relay's as if it had failed once. Later messages of
    /// their keys may have been delivered before them. Answers with how many there still were. Those that are redriven
    /// already stay as they are.
    ///
    /// Killed half-way, some are redriven; run it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn redrive_letters(&self, letters: &[LetterId], spacing: Duration) -> Result<u64, Error> {
        let statements = self.statements();
        let delays = (0u32..).map(|n| micros(spacing.saturating_mul(n)));
        let delayed: Vec<_> = letters.iter().zip(delays).collect();
        let mut redriven = 0;
        for some in delayed.chunks(CHANGED_AT_ONCE) {
            let mut tx = self.begin().await?;
            for (letter, delay) in some {
                let redrive = match letter {
                    LetterId::OfConsumer(id) => query::<DB>(&statements.letter_redrive)
                        .bind(*delay)
                        .bind(i64::from(crate::inbox::REDRIVE_ATTEMPTS))
                        .bind(*id),
                    LetterId::OfDestination(destination, position) => query::<DB>(&statements.parked_redrive)
                        .bind(*delay)
                        .bind(destination.clone())
                        .bind(*position),
                };
                redriven += DB::rows_affected(&redrive.execute(&mut *tx).await?);
            }
            tx.commit().await?;
            crash::point("letters.after_change");
        }
        Ok(redriven)
    }

    /// Deletes dead letters. Their messages never run: a consumer keeps its claim on them, a relay has passed them.
    /// Answers with how many there still were.
    ///
    /// Killed half-way, some are deleted; run it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn discard_letters(&self, letters: &[LetterId]) -> Result<u64, Error> {
        let statements = self.statements();
        let mut discarded = 0;
        for some in letters.chunks(CHANGED_AT_ONCE) {
            let mut tx = self.begin().await?;
            for letter in some {
                let discard = match letter {
                    LetterId::OfConsumer(id) => query::<DB>(&statements.letter_delete).bind(*id),
                    LetterId::OfDestination(destination, position) => {
                        query::<DB>(&statements.parked_discard).bind(destination.clone()).bind(*position)
                    }
                };
                discarded += DB::rows_affected(&discard.execute(&mut *tx).await?);
            }
            tx.commit().await?;
            crash::point("letters.after_change");
        }
        Ok(discarded)
    }

    /// One dead letter with its message.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn letter_message(&self, id: &LetterId) -> Result<twinbox_core::Message, Error> {
        let statements = self.statements();
        let mut conn = self.connection().await?;
        let (row, sequence) = match id {
            LetterId::OfConsumer(id) => {
                (query::<DB>(&statements.letter_message).bind(*id).fetch_optional(&mut *conn).await?, None)
            }
            LetterId::OfDestination(destination, position) => {
                let given_up = query::<DB>(&statements.given_up_message).bind(*position);
                let given_up = given_up.bind(destination.clone()).fetch_optional(&mut *conn).await?;
                (given_up, Some(*position))
            }
        };
        conn.done().await?;
        let Some(row) = row else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no dead letter {id}")));
        };
        let sequence = match sequence {
            Some(position) => Some(position),
            None => row.try_get(13)?,
        };
        crate::row::message::<DB>(&row, 0, self.service(), sequence)
    }
}

/// The columns of both pages.
fn read<DB: Dialect>(row: &DB::Row, id: LetterId, of: String) -> Result<Letter, Error> {
    let (source, event_id): (Option<String>, String) = (row.try_get(3)?, row.try_get(2)?);
    let source = source.unwrap_or_default();
    let message_id: Option<Uuid> = row.try_get(12)?;
    Ok(Letter {
        id,
        of,
        message_id: message_id.map_or_else(|| MessageId::of(&source, &event_id), MessageId::from_uuid),
        event_id,
        source,
        event_type: row.try_get(4)?,
        key: row.try_get(5)?,
        reason: row.try_get(6)?,
        error: row.try_get(7)?,
        attempts: u32::try_from(unsigned(row.try_get(8)?)).unwrap_or(u32::MAX),
        time: row.try_get::<Micros, _>(9)?.0,
        died_at: row.try_get::<Micros, _>(10)?.0,
        redriven: row.try_get(11)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_message_to_message_is_taken_out() {
        for (one, other) in [
            ("order 7 has no customer", "order 4711 has no customer"),
            ("id 01890a5d-ac96-774b is unknown", "id 71890a5d-bc96-874c is unknown"),
            ("no \"blue\" paint", "no \"light red\" paint"),
        ] {
            assert_eq!(without_data(one), without_data(other));
        }
        assert_ne!(without_data("no paint"), without_data("no brush"));
        assert_eq!(without_data(""), "");
        assert_eq!(without_data("é \"unended 7"), "é \"");
    }

    #[test]
    fn ids_are_read_as_they_were_written() {
        for id in [LetterId::OfConsumer(7), LetterId::OfDestination("a@b".to_owned(), 9)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "x", "nats@", "@x", "7.5", "--"] {
            assert!(bad.parse::<LetterId>().is_err(), "{bad}");
        }
    }
}
