//! The names and descriptions of the keeper's metrics.
use super::purges::KeeperReport;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const ROWS: &str = "twinbox_keeper_rows_purged_total";
const RUNS: &str = "twinbox_keeper_runs_total";
const LACKS_RIGHTS: &str = "twinbox_keeper_lacks_rights";

pub(super) fn describe() {
    describe_counter!(ROWS, Unit::Count, "Deleted rows, by table");
    describe_counter!(RUNS, Unit::Count, "Runs of the keeper, by outcome");
    describe_gauge!(LACKS_RIGHTS, Unit::Count, "1 if the role could not delete rows of a table, else 0");
}

pub(super) fn ran(report: &KeeperReport) {
    for (table, rows) in &report.rows {
        counter!(ROWS, "table" => *table).increment(*rows);
    }
    let outcome = match report {
        _ if !report.forbidden.is_empty() => "forbidden",
        _ if report.error.is_some() => "failed",
        _ => "done",
    };
    counter!(RUNS, "outcome" => outcome).increment(1);
    lacks_rights(!report.forbidden.is_empty());
}

pub(super) fn lacks_rights(lacks: bool) {
    gauge!(LACKS_RIGHTS).set(f64::from(u8::from(lacks)));
}
