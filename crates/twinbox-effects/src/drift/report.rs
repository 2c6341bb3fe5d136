//! The report of a run.
use super::sweep::Sweep;
use std::{fmt, time::Duration};
use twinbox_core::Timestamp;
use uuid::Uuid;

/// The exit code of a run that found something, as that of `twinbox status`.
const ALARM: i32 = 7;
/// The most findings of a check that a report shows.
const SHOWN_MAX: usize = 20;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriftReport {
    /// The id of the run, which its findings carry.
    pub run_id: Uuid,
    /// How much of the tables the run looked at.
    pub sweep: Sweep,
    /// When the run began, by the database's clock.
    pub at: Timestamp,
    /// The checks that were made.
    pub checks: Vec<CheckReport>,
    /// How long the oldest expired idempotency key has waited for its purge. It is no finding. If it grows
    /// from day to day, no purge runs.
    pub oldest_expired: Duration,
}

/// The findings of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// The name of the check, such as `missing webhook.payment_captured per payments`.
    pub check: String,
    /// The kind of the effects that are compared. Empty: the check compares none.
    pub kind: String,
    /// How many rows the check looked at.
    pub examined: u64,
    /// How many findings hold, those of earlier runs included, counted up to 10,000.
    pub open: u64,
    /// How many earlier findings no longer hold.
    pub resolved: u64,
    /// The open findings, at most [`FINDINGS_MAX`](super::FINDINGS_MAX).
    pub findings: Vec<DriftFinding>,
    /// Whether the run stopped at its bound, so that there may be more.
    pub is_cut: bool,
}

/// A finding that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriftFinding {
    /// The object: the id of a row, the position of an effect, the slot of an operation, a reader, or a
    /// consumer with a message id.
    pub object: String,
    /// How many effects were expected.
    pub expected: Option<u64>,
    /// How many there are: effects of a row, messages of a reader, failures of a message.
    pub actual: Option<u64>,
    /// More about it.
    pub detail: Option<String>,
    /// When a run saw it first.
    pub first_seen: Timestamp,
}

impl DriftReport {
    /// Returns 0 if nothing was found, else 7.
    pub fn exit_code(&self) -> i32 {
        if self.is_clean() { 0 } else { ALARM }
    }

    /// Returns whether no finding is open.
    pub fn is_clean(&self) -> bool {
        self.checks.iter().all(|check| check.open == 0)
    }
}

impl CheckReport {
    /// Returns the word with which the check begins.
    pub fn word(&self) -> &str {
        self.check.split(' ').next().unwrap_or_default()
    }

    /// The advice about findings.
    fn advice(&self) -> &'static str {
        match self.word() {
            "missing" => {
                "These rows have too few effects. Find out which code wrote them without planning, and plan \
                 the effects in a transaction."
            }
            "extra" => {
                "These rows have too many effects: the vendor may have acted twice. Look there, and undo one \
                 with `Effects::compensate`."
            }
            "orphan" => "The rows of these effects are gone. Find out what deleted them.",
            "overdue" => {
                "No dispatcher sends these effects. Is one running that knows the vendor, and is the vendor \
                 paused? See `twinbox vendors list`."
            }
            "unknown" => "Look at the vendor, then use `twinbox effects resolve`.",
            "failed" => "See `twinbox effects show`, then use `twinbox effects retry` or `resolve`.",
            "unfinished" => "Settle these requests at the vendor, then use `twinbox operations forget`.",
            "backlog" => "Messages of the log are not read. See `twinbox status`.",
            "failing" => "A handler fails on these messages. See `twinbox messages show`.",
            _ => "",
        }
    }
}

impl fmt::Display for DriftReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sweep = match self.sweep {
            Sweep::Full => "everything".to_owned(),
            Sweep::Sample(rows) => format!("a sample of {rows} rows"),
        };
        writeln!(f, "Drift, run {} at {}, {sweep}", self.run_id, self.at)?;
        writeln!(f)?;
        let width = self.checks.iter().map(|check| check.check.len()).max().unwrap_or(0).max("CHECK".len());
        writeln!(f, "{:width$}  LOOKED AT  OPEN  RESOLVED", "CHECK")?;
        for check in &self.checks {
            let more = if check.is_cut { "+" } else { "" };
            let open = format!("{}{more}", check.open);
            writeln!(f, "{:width$}  {:>9}  {open:>4}  {:>8}", check.check, check.examined, check.resolved)?;
        }
        for check in self.checks.iter().filter(|check| check.open > 0) {
            writeln!(f)?;
            writeln!(f, "{}", check.check)?;
            for finding in check.findings.iter().take(SHOWN_MAX) {
                write!(f, "  {finding}")?;
                writeln!(f)?;
            }
            let shown = check.findings.len().min(SHOWN_MAX) as u64;
            if check.open > shown {
                writeln!(f, "  and {} more: see the table drift_findings", check.open - shown)?;
            }
            writeln!(f, "  {}", check.advice())?;
        }
        let hours = self.oldest_expired.as_secs() / 3600;
        if hours > 0 {
            writeln!(f)?;
            writeln!(f, "The oldest expired idempotency key has waited for its purge for {hours} h.")?;
        }
        if self.is_clean() {
            writeln!(f)?;
            writeln!(f, "Nothing was found.")?;
        }
        Ok(())
    }
}

impl fmt::Display for DriftFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", plain(&self.object))?;
        match (self.expected, self.actual) {
            (Some(expected), Some(actual)) => write!(f, "  {actual} instead of {expected}")?,
            (None, Some(actual)) => write!(f, "  {actual}")?,
            _ => {}
        }
        if let Some(detail) = &self.detail {
            write!(f, "  {}", plain(detail))?;
        }
        write!(f, "  since {}", self.first_seen)
    }
}

/// Escapes control characters: a terminal would execute those of a row.
fn plain(text: &str) -> String {
    let hidden = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if hidden(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, findings: Vec<DriftFinding>) -> CheckReport {
        CheckReport {
            check: name.to_owned(),
            kind: String::new(),
            examined: 1000,
            open: findings.len() as u64,
            resolved: 1,
            findings,
            is_cut: false,
        }
    }

    /// R73
    #[test]
    fn a_report_can_be_read_by_a_person() {
        let finding = |object: &str, actual, detail: Option<&str>| DriftFinding {
            object: object.to_owned(),
            expected: detail.is_none().then_some(1),
            actual,
            detail: detail.map(str::to_owned),
            first_seen: Timestamp::from_micros(1_000_000),
        };
        let report = DriftReport {
            run_id: Uuid::from_u128(7),
            sweep: Sweep::Full,
            at: Timestamp::from_micros(2_000_000),
            checks: vec![
                check("missing a.b per payments", vec![finding("p1", Some(0), None)]),
                check("extra a.b per payments", Vec::new()),
                check("unknown", vec![finding("12", None, Some("a.b for mail\u{1b}, unknown"))]),
            ],
            oldest_expired: Duration::ZERO,
        };
        assert_eq!(
            report.to_string(),
            "\
Drift, run 00000000-0000-0000-0000-000000000007 at 1970-01-01T00:00:02Z, everything

CHECK                     LOOKED AT  OPEN  RESOLVED
missing a.b per payments       1000     1         1
extra a.b per payments         1000     0         1
unknown                        1000     1         1

missing a.b per payments
  p1  0 instead of 1  since 1970-01-01T00:00:01Z
  These rows have too few effects. Find out which code wrote them without planning, and plan the effects in \
a transaction.

unknown
  12  a.b for mail\\u{1b}, unknown  since 1970-01-01T00:00:01Z
  Look at the vendor, then use `twinbox effects resolve`.
"
        );
        assert_eq!(report.exit_code(), 7);
        let clean = DriftReport { checks: vec![check("extra", Vec::new())], ..report };
        assert!(clean.to_string().ends_with("Nothing was found.\n") && clean.exit_code() == 0);
    }
}
