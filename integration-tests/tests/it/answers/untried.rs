//! Tasks and statements that no fault meets here, and why.
use twinbox_core::task_name::TaskName;

/// Tasks that ask no database, or whose program runs in a process of its own: their tests are elsewhere.
pub(super) const ELSEWHERE: &[TaskName] = &[
    TaskName::AdminServer,
    TaskName::BusCheck,
    TaskName::DatabaseMetrics,
    TaskName::EventBridgeRequest,
    TaskName::Fingerprint,
    TaskName::FollowUrlFile,
    TaskName::MetricsUpkeep,
    TaskName::NatsTls,
    TaskName::OtlpRequest,
    TaskName::RelayWorker,
    TaskName::Signals,
    TaskName::SqsReceive,
    TaskName::SqsSettle,
    TaskName::Systemd,
];

/// Statements without a fault here, and why.
pub(super) const UNTRIED: &[(&str, &str)] = &[
    ("bulk_actions.fail", "for an action that no version can read"),
    ("deliveries.postpone", "for a parked delivery that fails once more"),
    ("destination_queue.delete", "for a parked message that has been sent"),
    ("effects.name", "for an effect that was planned in SQL"),
    ("holes.flush", "for a tick that another process has made"),
    ("holes.late_of_wide_hole", "for a large transaction that commits late"),
    ("inbox.end_claims", "sent behind a RELEASE, with the COMMIT"),
    ("inbox.purge_mark", "sent behind a SET, with the bounds of a handler"),
    ("jobs.give_up", "for a run whose process has died"),
    ("redaction.deliveries", "for a parked delivery of the key"),
    ("retention.purge", "on SQLite for messages that were found before"),
    ("setup.create_lock_secret", "by a migration alone"),
    ("setup.more_rights_held", "on MySQL for an account that may read the database `mysql`"),
    ("setup.record_migration", "migrations are interrupted in tests of their own"),
    ("setup.set_service", "by a migration alone"),
];
