//! The owners of dead letters, and groups of dead letters with one cause.
use crate::Ops;
use futures::future::{try_join_all, try_join3};
use sqlx::Row as _;
use std::collections::BTreeMap;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error, ReaderName,
    dead_letters::{
        DEAD_LETTERS_MAX, DeadLetterFilter, DeadLetterGroup, DeadLetterOwner, LATELY, Place, page_before,
    },
    engine::{Micros, Statement, TextColumns, count, micros, query},
};

/// The most groups that are listed.
pub const GROUPS_MAX: usize = 1_000;
/// Dead letters that a list of groups counts in all.
const COUNTED_MAX: usize = 25_000;
/// Groups that are counted at the same time, each on a connection.
const COUNTED_AT_ONCE: usize = 3;
/// Behind every number and every time of a dead letter.
pub(super) const END: Place =
    Place { time: Timestamp::from_micros(253_402_300_799_000_000), number: i64::MAX };

impl<DB: Dialect> Ops<DB> {
    /// Returns the consumers and the destinations that have dead letters and that the filter names, or all
    /// of them: consumers first, by name. Costs an index entry for each.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letter_owners(&self, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterOwner>, Error> {
        if filter.consumer.is_some() && filter.destination.is_some() {
            return Ok(Vec::new());
        }
        if let Some(owner) = filter.owner() {
            return Ok(vec![owner]);
        }
        let (sql, mut conn) = (self.engine.sql(), self.engine.connection().await?);
        let mut owners = Vec::new();
        let mut name = String::new();
        while let Some(next) = next::<DB>(&mut conn, &sql.dead_letters.next_consumer, &[&name]).await? {
            owners.push(DeadLetterOwner::Consumer(next.clone()));
            name = next;
        }
        name = String::new();
        while let Some(next) = next::<DB>(&mut conn, &sql.parked_messages.next_destination, &[&name]).await? {
            if !matches!(next.parse(), Ok(ReaderName::Replay(_))) {
                owners.push(DeadLetterOwner::Destination(next.clone()));
            }
            name = next;
        }
        conn.done().await?;
        Ok(owners)
    }

    /// Returns dead letters grouped by their cause, the largest group first, and up to [`GROUPS_MAX`] groups:
    /// if there are more, at least half of them of destinations, or all that those have. Of groups that are
    /// counted no further, the one that got the last dead letter comes first.
    ///
    /// Without conditions but an owner and a fingerprint, it walks from group to group in an index, and
    /// counts each up to [`DEAD_LETTERS_MAX`], or to less where there are more than two groups: all together
    /// up to 25,000. With other conditions it reads every dead letter.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letter_groups(&self, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterGroup>, Error> {
        let by_group = DeadLetterFilter {
            consumer: filter.consumer.clone(),
            destination: filter.destination.clone(),
            fingerprint: filter.fingerprint.clone(),
            ..DeadLetterFilter::default()
        };
        let mut groups = match by_group == *filter {
            true => self.indexed_groups(filter).await?,
            false => self.scanned_groups(filter).await?,
        };
        groups.sort_by(|a, b| {
            let size = |group: &DeadLetterGroup| (group.dead_letters, group.lately, group.last_given_up_at);
            size(b).cmp(&size(a)).then_with(|| a.fingerprint.cmp(&b.fingerprint))
        });
        Ok(groups)
    }

    async fn indexed_groups(&self, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterGroup>, Error> {
        let owners = self.dead_letter_owners(filter).await?;
        let (consumers, destinations): (Vec<_>, Vec<_>) =
            owners.into_iter().partition(|owner| matches!(owner, DeadLetterOwner::Consumer(_)));
        let (mut found, of_destinations, since) = try_join3(
            self.find_groups(consumers, filter),
            self.find_groups(destinations, filter),
            self.lately(),
        )
        .await?;
        found.truncate(GROUPS_MAX - of_destinations.len().min(GROUPS_MAX / 2));
        found.extend(of_destinations);
        found.truncate(GROUPS_MAX);
        let limit = limit_of_each(found.len());
        let shares = (0..COUNTED_AT_ONCE.min(found.len())).map(|first| {
            let share = found.iter().skip(first).step_by(COUNTED_AT_ONCE);
            async move {
                let (mut conn, mut groups) = (self.engine.connection_for_many().await?, Vec::new());
                for found in share {
                    groups.extend(self.count_group(&mut conn, found, limit, since).await?);
                }
                conn.done().await?;
                Ok::<_, Error>(groups)
            }
        });
        Ok(try_join_all(shares).await?.concat())
    }

    /// Returns the groups of some owners, up to [`GROUPS_MAX`].
    async fn find_groups(
        &self,
        owners: Vec<DeadLetterOwner>,
        filter: &DeadLetterFilter,
    ) -> Result<Vec<(DeadLetterOwner, String)>, Error> {
        let (sql, mut found) = (self.engine.sql(), Vec::new());
        for owner in owners {
            let mut conn = self.engine.connection().await?;
            let next_group = match &owner {
                DeadLetterOwner::Consumer(_) => &sql.dead_letters.next_group,
                DeadLetterOwner::Destination(_) => &sql.parked_messages.next_group,
            };
            let begins = filter.fingerprint.as_deref().unwrap_or_default();
            let mut last = before(begins);
            while found.len() < GROUPS_MAX
                && let Some(fingerprint) = next::<DB>(&mut conn, next_group, &[owner.name(), &last]).await?
                && fingerprint.starts_with(begins)
            {
                last.clone_from(&fingerprint);
                found.push((owner.clone(), fingerprint));
            }
            conn.done().await?;
        }
        Ok(found)
    }

    /// Counts a group up to a limit. None: its last dead letter has gone meanwhile.
    async fn count_group(
        &self,
        conn: &mut DB::Connection,
        (owner, fingerprint): &(DeadLetterOwner, String),
        limit: u32,
        since: Timestamp,
    ) -> Result<Option<DeadLetterGroup>, Error> {
        let sql = self.engine.sql();
        let newest = page_before(&self.engine, conn, owner, Some(fingerprint), END, 1).await?;
        let Some(newest) = newest.into_iter().next() else { return Ok(None) };
        let (name, limit) = (owner.name(), i64::from(limit));
        let counts = match owner {
            DeadLetterOwner::Consumer(_) => &sql.dead_letters.group_counts,
            DeadLetterOwner::Destination(_) => &sql.parked_messages.group_counts,
        };
        let counts = query::<DB>(counts).bind(Micros(since)).bind(name.to_owned()).bind(fingerprint.clone());
        let counts = counts.bind(name.to_owned()).bind(fingerprint.clone()).bind(limit);
        let row = counts.fetch_one(conn).await?;
        let dead_letters = count(row.try_get("dead_letters")?);
        if dead_letters == 0 {
            return Ok(None);
        }
        let mut group = DeadLetterGroup::of(newest);
        group.dead_letters = dead_letters;
        group.has_more = group.dead_letters >= count(limit);
        group.lately = count(row.try_get("lately")?);
        group.redriven = count(row.try_get("redriven")?);
        group.first_given_up_at = row.try_get::<Micros, _>("first_given_up_at")?.0;
        group.last_given_up_at = row.try_get::<Micros, _>("last_given_up_at")?.0;
        Ok(Some(group))
    }

    /// Returns the time since which a dead letter is one of lately.
    pub(super) async fn lately(&self) -> Result<Timestamp, Error> {
        let now = self.store.now().await?.as_micros();
        Ok(Timestamp::from_micros(now.saturating_sub(micros(LATELY))))
    }

    /// Reads and groups every dead letter that matches.
    async fn scanned_groups(&self, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterGroup>, Error> {
        let since = self.lately().await?;
        let mut groups: BTreeMap<String, DeadLetterGroup> = BTreeMap::new();
        self.each_dead_letter(filter, |dead_letter| {
            let fingerprint = &dead_letter.fingerprint;
            if !groups.contains_key(fingerprint) && groups.len() == GROUPS_MAX {
                return;
            }
            let group =
                groups.entry(fingerprint.clone()).or_insert_with(|| DeadLetterGroup::of(dead_letter.clone()));
            group.dead_letters += 1;
            group.redriven += u64::from(dead_letter.is_redriven);
            group.lately += u64::from(dead_letter.given_up_at > since);
            group.first_given_up_at = group.first_given_up_at.min(dead_letter.given_up_at);
            if dead_letter.given_up_at >= group.last_given_up_at {
                group.last_given_up_at = dead_letter.given_up_at;
                group.newest = dead_letter;
            }
        })
        .await?;
        Ok(Vec::from_iter(groups.into_values()))
    }
}

/// How far each of the groups is counted: a round number.
fn limit_of_each(groups: usize) -> u32 {
    let limits = [DEAD_LETTERS_MAX, 5_000, 2_000, 1_000, 500, 200, 100, 50];
    let within = |limit: &u32| *limit as usize * groups <= COUNTED_MAX;
    limits.into_iter().find(within).unwrap_or(25)
}

/// Returns a text before all fingerprints with these first digits, and behind all that come before them.
fn before(digits: &str) -> String {
    let mut before = digits.to_owned();
    match before.pop() {
        None | Some('0') => {}
        Some('a') => before.push_str("9g"),
        Some(digit) => before.extend([char::from_u32(digit as u32 - 1).unwrap_or(digit), 'g']),
    }
    before
}

/// Returns the next name in an index behind the last of `names`.
async fn next<DB: Dialect>(
    conn: &mut DB::Connection,
    statement: &Statement,
    names: &[&str],
) -> Result<Option<String>, Error> {
    let next = query::<DB>(statement);
    let next = names.iter().fold(next, |query, name| query.bind((*name).to_owned()));
    let row = next.fetch_one(conn).await?;
    Ok(row.text_or_null("name")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_begins_before_the_digits() {
        for (digits, first, one_before) in [
            ("a10", "a10000000000", "a0ffffffffff"),
            ("abc", "abc000000000", "abbfffffffff"),
            ("a", "a00000000000", "9fffffffffff"),
            ("1", "100000000000", "0fffffffffff"),
            ("0", "000000000000", ""),
            ("", "000000000000", ""),
        ] {
            assert!(before(digits).as_str() < first && before(digits).as_str() >= one_before, "{digits}");
        }
    }

    #[test]
    fn many_groups_are_counted_less_far() {
        assert_eq!([1, 2, 3, 60, GROUPS_MAX].map(limit_of_each), [10_000, 10_000, 5_000, 200, 25]);
        assert!((1..=GROUPS_MAX).all(|groups| limit_of_each(groups) as usize * groups <= COUNTED_MAX));
    }
}
