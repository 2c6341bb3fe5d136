//! Drift between the application's rows and their side effects.
use super::area;

area! {
    /// Drift outside the application's tables, and the findings. By primary key where nothing else
    /// is named.
    Drift {
        /// The first and the last position of effects.
        positions,
        /// The vendors of open effects, each found by one step in `side_effects_due`. Bind: limit.
        due_vendors,
        /// Effects of a vendor that are due for longer than a time, by `side_effects_due`. Ordered, because
        /// the table would be read as a whole without. Binds: vendor, microseconds, limit.
        overdue,
        /// Unknown effects that were last sent before a time, by `side_effects_problem`. Binds: microseconds,
        /// limit.
        unknown,
        /// The same of failed ones.
        failed,
        /// Unfinished operations that nobody has worked on for a time, by `idempotency_keys_unfinished`.
        /// Binds: microseconds, twice; limit.
        unfinished,
        /// The microseconds until the first idempotency key that a purge may delete expires, by
        /// `idempotency_keys_expires_at`.
        first_expiry,
        /// Messages that consumers try in vain for longer than a time. Reads the whole table, which has a row
        /// only for failing messages. Binds: microseconds, limit.
        failing,
        /// Writes a finding. Binds: check, object, expected, actual, detail, run.
        write,
        /// Open findings of a check, by `drift_findings_open`. Binds: check, object to begin after, limit.
        open,
        /// The checks with open findings, by `drift_findings_open`, of which a run keeps few. Bind: limit.
        open_checks,
        /// Notes that a finding no longer holds. Binds: check, object.
        resolve,
        /// The same for those of a check that a run has not seen, by `drift_findings_open`. Binds: check,
        /// run.
        resolve_unseen,
        /// How many findings of a check are open, up to a limit, by the same. Binds: check, limit.
        count_open,
        /// Deletes findings that were resolved before a time, by `drift_findings_resolved_at`. Binds:
        /// microseconds, limit.
        purge,
    }
}
