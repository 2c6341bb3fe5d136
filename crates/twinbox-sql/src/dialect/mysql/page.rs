//! The positions of a page of the log.
//!
//! A server that compared each row with the holes of a tick would read all of them for each row. So the
//! holes come with the rows, and are compared here.
use crate::{
    Error,
    catalog::Catalog,
    dialect::PageBinds,
    statement::{Query, query, scalar},
};
use sqlx::{MySql, MySqlConnection, Row as _};

/// The rows of one look after the first, at least. A page of a few large messages may stand behind many that
/// came later.
const ROWS_MIN: usize = 1_000;
/// Rows of the statement that reads positions.
const NEWCOMER: i64 = 1;
const HOLE: i64 = 2;
const WIDE: i64 = 3;

/// One look at a window.
#[derive(Debug, Default)]
struct Look {
    /// Positions that were holes of the first tick.
    late: Vec<i64>,
    /// Positions beyond the first tick.
    newcomers: Vec<i64>,
    /// The holes of the second tick.
    holes: Holes,
    /// The first and last position of the first hole of late committers that is read by itself.
    wide: Option<(i64, i64)>,
}

/// Ranges of positions, with their first and last, in order.
#[derive(Debug, Default)]
pub(super) struct Holes(Vec<(i64, i64)>);

impl Holes {
    pub(super) fn new(mut ranges: Vec<(i64, i64)>) -> Self {
        ranges.sort_unstable();
        Self(ranges)
    }

    pub(super) fn hold(&self, position: i64) -> bool {
        self.end_around(position).is_some()
    }

    /// The last position of the hole around a position.
    fn end_around(&self, position: i64) -> Option<i64> {
        let before = self.0.partition_point(|&(first, _)| first <= position).checked_sub(1)?;
        Some(self.0[before].1).filter(|&last| last >= position)
    }
}

/// The positions of the next messages of a window, in order: fewer than the limit only if there are no more.
pub(super) async fn positions(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    page: PageBinds,
) -> Result<Vec<i64>, Error> {
    let (limit, mut after) = (usize::try_from(page.limit).unwrap_or(usize::MAX), page.after);
    let (mut rows, mut positions) = (limit, Vec::new());
    loop {
        let look = look(conn, catalog, rows, PageBinds { after, ..page }).await?;
        let (found, reached) = match look.wide {
            Some((first, last)) if first <= after.saturating_add(1) => {
                let late = scalar::<MySql, i64>(&catalog.sql.holes.late_of_wide_hole);
                let late = late
                    .bind(after)
                    .bind(last)
                    .bind(i64::try_from(rows).unwrap_or(i64::MAX))
                    .fetch_all(&mut *conn)
                    .await?;
                look.settled_of_wide_hole(late, rows, last)
            }
            _ => look.settled(rows),
        };
        positions.extend(found);
        positions.truncate(limit);
        match reached {
            Some(reached) if positions.len() < limit => after = reached,
            _ => return Ok(positions),
        }
        rows = limit.max(ROWS_MIN);
    }
}

async fn look(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    rows: usize,
    page: PageBinds,
) -> Result<Look, Error> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let late = query::<MySql>(&catalog.sql.holes.positions).bind(page.p).bind(page.p).bind(page.w);
    let newcomers = late.bind(page.after).bind(rows).bind(page.after).bind(page.floor).bind(page.p);
    let newcomers = newcomers.bind(page.ceiling).bind(page.w).bind(rows);
    let holes = newcomers.bind(page.w).bind(page.w).bind(page.after);
    let holes = holes.bind(page.p).bind(page.p).bind(page.w).bind(page.after);
    let (mut look, mut ranges) = (Look::default(), Vec::new());
    for row in holes.fetch_all(conn).await? {
        let (first, last): (i64, i64) = (row.try_get("first")?, row.try_get("last")?);
        match row.try_get("kind")? {
            HOLE => ranges.push((first, last)),
            WIDE => look.wide = Some((first, last)),
            NEWCOMER => look.newcomers.push(first),
            _ => look.late.push(first),
        }
    }
    look.late.sort_unstable();
    look.newcomers.sort_unstable();
    look.holes = Holes::new(ranges);
    Ok(look)
}

impl Look {
    /// The positions that are settled, and how far the look reached if it was cut: up to the end of a hole,
    /// so that there are no more looks than holes and pages.
    fn settled(self, rows: usize) -> (Vec<i64>, Option<i64>) {
        let Self { mut late, newcomers, holes, wide } = self;
        let is_late_cut = late.len() >= rows;
        if let Some((first, _)) = wide {
            late.retain(|&position| position < first);
        }
        // Late committers stand before all newcomers.
        let (newcomers, reached) = match (is_late_cut, wide) {
            (true, _) if !late.is_empty() => (Vec::new(), late.last().copied()),
            (_, Some((first, _))) => (Vec::new(), Some(first - 1)),
            _ => {
                let reached = newcomers.last().copied().filter(|_| newcomers.len() >= rows);
                (newcomers, reached)
            }
        };
        let reached = reached.map(|position| holes.end_around(position).unwrap_or(position));
        let found = late.into_iter().chain(newcomers).filter(|&position| !holes.hold(position));
        (found.collect(), reached)
    }

    /// The same for the wide hole, whose late positions are read by themselves.
    fn settled_of_wide_hole(self, late: Vec<i64>, rows: usize, last: i64) -> (Vec<i64>, Option<i64>) {
        let reached = late.last().copied().filter(|_| late.len() >= rows).unwrap_or(last);
        let reached = self.holes.end_around(reached).unwrap_or(reached);
        (late.into_iter().filter(|&position| !self.holes.hold(position)).collect(), Some(reached))
    }
}

/// Binds the values of the statement that reads messages by their positions.
pub(super) fn bind<'q>(query: Query<'q, MySql>, page: PageBinds, positions: &[i64]) -> Query<'q, MySql> {
    let PageBinds { p, w, server_run, .. } = page;
    let list = positions.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    query.bind(server_run).bind(p).bind(w).bind(p).bind(w).bind(format!("[{list}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(late: &[i64], newcomers: &[i64], holes: &[(i64, i64)]) -> Look {
        let (late, newcomers) = (late.to_vec(), newcomers.to_vec());
        Look { late, newcomers, holes: Holes::new(holes.to_vec()), wide: None }
    }

    #[test]
    fn positions_in_holes_are_left_out() {
        let holes = Holes::new(vec![(9, 20), (2, 2), (5, 7)]);
        let outside: Vec<_> = (1..=9).filter(|&position| !holes.hold(position)).collect();
        assert_eq!(outside, [1, 3, 4, 8]);
        assert!(!Holes::default().hold(3));
        assert_eq!(look(&[3], &[5, 6], &[(5, 5)]).settled(9), (vec![3, 6], None));
    }

    #[test]
    fn a_look_that_was_cut_says_how_far_it_reached() {
        assert_eq!(look(&[3], &[5, 6], &[(5, 5)]).settled(2), (vec![3, 6], Some(6)));
        assert_eq!(look(&[3], &[5, 6], &[(5, 90)]).settled(2), (vec![3], Some(90)));
        assert_eq!(look(&[], &[], &[]).settled(2), (vec![], None));
    }

    /// Further late committers may come before the newcomers.
    #[test]
    fn newcomers_wait_for_late_committers() {
        assert_eq!(look(&[1, 2], &[5, 6], &[]).settled(2), (vec![1, 2], Some(2)));
        assert_eq!(look(&[1, 2], &[5, 6], &[(1, 1)]).settled(2), (vec![2], Some(2)));
    }

    #[test]
    fn what_is_behind_a_wide_hole_waits_for_it() {
        let wide = |late: &[i64], holes: &[_]| Look { wide: Some((10, 40)), ..look(late, &[90], holes) };
        assert_eq!(wide(&[3, 50], &[]).settled(9), (vec![3], Some(9)));
        assert_eq!(wide(&[50, 51], &[]).settled(2), (vec![], Some(9)));
        assert_eq!(wide(&[3, 4], &[]).settled(2), (vec![3, 4], Some(4)));
    }

    #[test]
    fn a_wide_hole_is_read_up_to_its_end_or_a_limit() {
        let read = |late: &[i64], holes| look(&[], &[], holes).settled_of_wide_hole(late.to_vec(), 3, 40);
        assert_eq!(read(&[11, 12, 30], &[]), (vec![11, 12, 30], Some(30)));
        assert_eq!(read(&[11, 12], &[]), (vec![11, 12], Some(40)));
        assert_eq!(read(&[11, 12, 30], &[(12, 44)]), (vec![11], Some(44)));
    }
}
