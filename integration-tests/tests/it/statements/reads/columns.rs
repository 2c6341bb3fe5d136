//! The columns of long tables.
use super::long_tables::{LongTables, VALUE};

/// One of several values, in turn.
fn pick(values: &[&str]) -> String {
    let cases = values.iter().enumerate().map(|(n, value)| format!("WHEN {n} THEN {value}"));
    format!("CASE n % {} {} END", values.len(), Vec::from_iter(cases).join(" "))
}

/// Columns with SQL of their values.
pub(super) type Columns = Vec<(&'static str, String)>;

/// The columns of each table but the log, its ticks and cursors.
pub(super) fn columns<DB: LongTables>(at: &str) -> Vec<(&'static str, Columns)> {
    let (owner, number, text) = (format!("'{VALUE}'"), VALUE.to_string(), DB::text());
    // A third has no key, a third has one key, and each other one a key of its own.
    let key = pick(&["NULL", &owner, &text]);
    let join = |parts: &[&[(&'static str, &str)]]| -> Columns {
        parts.concat().into_iter().map(|(name, value)| (name, value.to_owned())).collect()
    };
    let message: &[(&'static str, &str)] = &[
        ("message_id", DB::ID),
        ("event_id", &text),
        ("source", "'s'"),
        ("type", "'t'"),
        ("version", "1"),
        ("key", &key),
        ("time", at),
        ("content_type", "'a/b'"),
        ("payload", DB::BYTES),
    ];
    let of_consumer: &[(&'static str, &str)] = &[("consumer", &owner)];
    let of_two = |first: &str, second: &str| pick(&[first, first, second, second]);
    // One is unknown, and one has failed.
    let (state, ended) =
        (pick(&["'pending'", "'fired'", "'confirmed'", "'compensated'"]), pick(&["NULL", "NULL", at, at]));
    let state = format!("CASE WHEN n = 1 THEN 'unknown' WHEN n = 2 THEN 'failed' ELSE {state} END");
    vec![
        (
            "parked_messages",
            join(&[&[
                ("destination", &owner),
                ("position", &format!("{VALUE} + n")),
                ("key", &key),
                ("type", "'t'"),
                ("state", &pick(&["'waiting'", "'dead'", "'blocking'", "'dead'", "'waiting'"])),
                ("blocks_key", "n % 3 > 0"),
                ("attempts", "1"),
                ("next_attempt_at", at),
                ("first_error", "'e'"),
                ("last_error", "'e'"),
                ("fingerprint", &owner),
                ("parked_at", at),
            ]]),
        ),
        (
            "delayed_messages",
            join(&[&[("type", "'t'"), ("payload", DB::BYTES), ("not_before", at), ("message_id", DB::ID)]]),
        ),
        (
            "replays",
            join(&[&[
                ("token", DB::ID),
                ("destination", &owner),
                ("selection", "'{}'"),
                ("p", &number),
                ("w", &number),
                ("position", &number),
                ("first_position", &number),
                ("last_position", &number),
                ("selected", "1"),
                ("state", &pick(&["'done'", "'cancelled'"])),
                ("made_by", "'x'"),
                ("made_at", at),
                ("ended_at", at),
            ]]),
        ),
        (
            "inbox",
            join(&[
                of_consumer,
                &[
                    ("message_id", DB::ID),
                    ("source", "'s'"),
                    ("event_id", &text),
                    ("payload_hash", DB::HASH),
                    ("state", &pick(&["'processed'", "'rejected'", "'dead'"])),
                    ("claimed_at", at),
                    ("time", at),
                ],
            ]),
        ),
        (
            "attempts",
            join(&[
                of_consumer,
                &[
                    ("message_id", DB::ID),
                    ("failures", "1"),
                    ("last_error", "'e'"),
                    ("first_failed_at", at),
                    ("last_failed_at", at),
                    ("starts", "n % 2"),
                ],
            ]),
        ),
        (
            "dead_letters",
            join(&[
                of_consumer,
                message,
                &[
                    ("reason", "'r'"),
                    ("error", "'e'"),
                    ("fingerprint", &owner),
                    ("attempts", "1"),
                    ("given_up_at", at),
                    ("redrive_at", at),
                    ("redrive_attempts_left", "n % 3"),
                ],
            ]),
        ),
        (
            "parked_deliveries",
            join(&[of_consumer, message, &[("partition", &number), ("next_attempt_at", at)]]),
        ),
        (
            "superseded_claims",
            join(&[of_consumer, &[("message_id", DB::ID), ("replay", DB::ID), ("superseded_at", at)]]),
        ),
        (
            "idempotency_keys",
            join(&[&[
                ("slot", DB::HASH),
                ("tenant", &owner),
                ("principal", &owner),
                ("scope", &owner),
                ("key", &text),
                ("request_hash", DB::HASH),
                ("hash_alg", "'a'"),
                ("status", &pick(&["'pending'", "'complete'", "'failed'"])),
                ("http_code", "500"),
                ("recovery_point", &pick(&["NULL", "'x'"])),
                ("created_at", at),
                ("updated_at", at),
                ("expires_at", at),
            ]]),
        ),
        (
            "webhook_receipts",
            join(&[&[
                ("provider", &owner),
                ("endpoint", &owner),
                ("dedup_id", &text),
                ("dedup_basis", "'body'"),
                ("payload_hash", DB::HASH),
                ("secret_index", "0"),
                ("received_at", at),
                ("expires_at", at),
            ]]),
        ),
        (
            "side_effects",
            join(&[&[
                ("source_id", DB::ID),
                ("kind", &owner),
                ("vendor", &owner),
                ("key", &key),
                ("state", &state),
                ("request", DB::BYTES),
                ("next_attempt_at", &of_two(at, "NULL")),
                ("ended_at", &ended),
                ("created_at", at),
            ]]),
        ),
        (
            "job_runs",
            join(&[&[
                ("run_id", DB::ID),
                ("job_id", &owner),
                ("scheduled_for", at),
                ("state", &pick(&["'pending'", "'running'", "'done'", "'failed'"])),
                ("next_attempt_at", &of_two(at, "NULL")),
                ("finished_at", &of_two("NULL", at)),
                ("created_at", at),
            ]]),
        ),
        (
            "client_keys",
            join(&[&[
                ("operation", &owner),
                ("business_id", &text),
                ("key", DB::ID),
                ("state", &pick(&["'pending'", "'sent'", "'done'"])),
                ("created_at", at),
                ("ended_at", &pick(&["NULL", "NULL", at])),
            ]]),
        ),
        (
            "drift_findings",
            join(&[&[
                ("check_id", &owner),
                ("object_id", &text),
                ("run_id", DB::ID),
                ("first_seen", at),
                ("last_seen", at),
                ("resolved_at", &pick(&["NULL", at])),
            ]]),
        ),
        ("audit", join(&[&[("at", at), ("operator", "'o'"), ("command", "'c'"), ("target", &owner)]])),
        (
            "bulk_actions",
            join(&[&[
                ("action", "'redrive'"),
                ("filter", "'{}'"),
                ("spacing", "0"),
                ("planned", "1"),
                ("state", &pick(&["'done'", "'cancelled'"])),
                ("audit_id", "n"),
                ("made_by", "'x'"),
                ("made_at", at),
                ("ended_at", at),
            ]]),
        ),
    ]
}
