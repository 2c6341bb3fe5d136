//! When a job runs.
use super::{
    aws,
    zone::{WallClock, Zone},
};
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use std::time::Duration;
use twinbox_core::Timestamp;

/// The most bytes of a schedule.
const SCHEDULE_BYTES_MAX: usize = 255;

/// The names of the fields.
const FIELDS: [&str; 7] = ["second", "minute", "hour", "day of month", "month", "day of week", "year"];

/// The most changes of a zone's rules between two runs: twice a year, for more years than a schedule reaches.
const CHANGES_MAX: usize = 20_000;

/// When a job runs, in a time zone.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) text: String,
    pub(super) zone: Zone,
    rule: Rule,
}

#[derive(Debug, Clone)]
enum Rule {
    /// Times of day. One that falls into a gap is due at the end of the gap; one that comes twice is due at
    /// the first time.
    Fixed(Cron),
    /// Times of day whose hours or minutes go on and on: a gap skips them, and a fold repeats them.
    Interval(Cron),
    /// Each multiple of a duration since 1970.
    Rate(Duration),
}

impl Schedule {
    /// Reads a schedule, in UTC.
    ///
    /// # Errors
    /// The text of the error: it names the part to change.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > SCHEDULE_BYTES_MAX {
            return Err(format!("a schedule has at most {SCHEDULE_BYTES_MAX} bytes"));
        }
        let text = text.trim();
        let inside = |name: &str| text.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')');
        let rule = if let Some(fields) = inside("cron") {
            cron(&aws::cron(fields)?, true)?
        } else if let Some(rate) = inside("rate") {
            Rule::Rate(aws::rate(rate)?)
        } else {
            cron(text, false)?
        };
        let schedule = Self { text: text.to_owned(), zone: Zone::utc(), rule };
        if schedule.next(Timestamp::from_micros(0)).is_none() {
            return Err("it has no time at all since 1970: look at its day, month and year".to_owned());
        }
        Ok(schedule)
    }

    /// Returns the first time after `after`. None: it has none.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Rate(period) => {
                let period = i64::try_from(period.as_micros()).ok()?;
                let next = after.as_micros().div_euclid(period).checked_add(1)?.checked_mul(period)?;
                Some(Timestamp::from_micros(next))
            }
            Rule::Fixed(cron) => self.next_fixed(cron, after),
            Rule::Interval(cron) => self.next_of_interval(cron, after),
        }
    }

    fn next_fixed(&self, cron: &Cron, after: Timestamp) -> Option<Timestamp> {
        let mut clock = self.zone.wall_clock(after)?;
        // In the second half of a fold the next times may have been due in the first half.
        loop {
            clock = next_on(cron, clock, false)?;
            let due = self.zone.first_instant(clock)?;
            if due > after {
                return Some(due);
            }
        }
    }

    fn next_of_interval(&self, cron: &Cron, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        for _ in 0..CHANGES_MAX {
            let clock = next_on(cron, self.zone.wall_clock(from)?, inclusive)?;
            let due = self.zone.instant_with_offset_at(clock, from)?;
            match self.zone.next_change(from).filter(|change| *change <= due) {
                None => return Some(due),
                Some(change) => (from, inclusive) = (change, true),
            }
        }
        None
    }
}

fn next_on(cron: &Cron, clock: WallClock, inclusive: bool) -> Option<WallClock> {
    cron.find_next_occurrence(&clock, inclusive).ok()
}

/// Reads five, six or seven fields. `is_aws`: days of the week count from Sunday as 1.
fn cron(fields: &str, is_aws: bool) -> Result<Rule, String> {
    let count = fields.split_whitespace().count();
    if !(5..=7).contains(&count) || fields.contains('@') {
        return Err(
            "write 5 fields, `minute hour day-of-month month day-of-week`, 6 with the second before \
                    them, 7 with the year behind them, `cron(…)` or `rate(…)`"
                .to_owned(),
        );
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional);
    let parser = parser.alternative_weekdays(is_aws).build();
    let cron = parser.parse(fields).map_err(|error| {
        let names = &FIELDS[usize::from(count == 5)..];
        let is_bad = |at: usize, field: &str| {
            let alone: Vec<_> = (0..count).map(|other| if other == at { field } else { "*" }).collect();
            parser.parse(&alone.join(" ")).is_err()
        };
        let bad = fields.split_whitespace().enumerate().find(|(at, field)| is_bad(*at, field));
        let bad = bad.map(|(at, field)| format!("its {} {field:?}: ", names[at])).unwrap_or_default();
        let hint = match fields {
            _ if is_aws => "",
            _ if fields.contains('?') => ": fields with `?` stand inside of `cron(…)`",
            _ if fields.contains('/') => ": write a step as `*/15` or `0-59/15`",
            _ => "",
        };
        format!("{bad}{error}{hint}")
    })?;
    let hours_and_minutes = fields.split_whitespace().skip(usize::from(count > 5)).take(2);
    let is_interval = hours_and_minutes.into_iter().any(|field| field.contains(['*', '/']));
    Ok(if is_interval { Rule::Interval(cron) } else { Rule::Fixed(cron) })
}

#[cfg(test)]
mod tests;
