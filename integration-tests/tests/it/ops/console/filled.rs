//! A database that has something of everything, with texts that attack the reader.
use crate::support::stores::World;
use sqlx::Postgres;

/// Markup, a link, a format, an escape of terminals, and a character that reverses the text.
pub(super) const HOSTILE: &str =
    "<script>owned=1</script>\"'><img src=x onerror=owned=1>{{7777*7777}}\u{202e}\u{1b}[31m";

/// Fills each table that pages show. The hostile text stands in every column that takes it.
pub(super) async fn filled() -> World<Postgres> {
    filled_with(HOSTILE).await
}

/// The same with another text.
pub(super) async fn filled_with(text: &str) -> World<Postgres> {
    let world = World::<Postgres>::new().await;
    let text = format!("$hostile${text}$hostile$");
    for fill in FILL {
        let sql = fill.replace("HOSTILE", &text);
        let mut conn = world.pool().acquire().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *conn).await.unwrap();
    }
    world
}

const FILL: [&str; 16] = [
    "INSERT INTO twinbox.outbox (id, source, type, key, subject, correlation_id, headers, payload)
     VALUES (HOSTILE, HOSTILE, 'orders.placed', HOSTILE, HOSTILE, HOSTILE,
        jsonb_build_object(HOSTILE, HOSTILE)::text, convert_to(HOSTILE, 'UTF8'))",
    "INSERT INTO twinbox.outbox (id, type, key, payload)
     SELECT 'order-' || n, 'orders.placed', 'customer-' || n % 5, convert_to('{\"n\":' || n || '}', 'UTF8')
     FROM generate_series(1, 300) n",
    "INSERT INTO twinbox.cursors (destination, p, w, position, pause_reason, started_at)
     VALUES ('nats', 0, 0, 5, NULL, now()), (HOSTILE, 0, 0, 0, HOSTILE, now()),
        ('replay:1', 0, 0, 0, NULL, now());
     UPDATE twinbox.cursors SET lease_until = now() - interval '90 seconds';
     UPDATE twinbox.cursors SET lease_until = now() + interval '1 hour' WHERE destination = 'nats'",
    "INSERT INTO twinbox.parked_messages (destination, position, key, type, state, blocks_key, attempts,
        next_attempt_at, first_error, last_error, fingerprint)
     VALUES
        (HOSTILE, 1, HOSTILE, 'orders.placed', 'blocking', true, 3, now(), HOSTILE, HOSTILE, 'aaaaaaaaaaaa'),
        ('nats', 1, HOSTILE, 'orders.placed', 'dead', true, 3, now(), HOSTILE, HOSTILE, 'bbbbbbbbbbbb'),
        ('nats', 2, 'customer-1', 'orders.placed', 'waiting', true, 1, now(), 'nats.timeout', 'nats.timeout',
            'cccccccccccc')",
    "INSERT INTO twinbox.consumers (consumer, pause_reason)
     VALUES (HOSTILE, HOSTILE), ('billing.invoice', NULL)",
    "INSERT INTO twinbox.dead_letters (consumer, message_id, reason, error, fingerprint, attempts, event_id,
        source, type, version, key, time, content_type, headers, payload)
     VALUES (HOSTILE, gen_random_uuid(), HOSTILE, HOSTILE, 'dddddddddddd', 1, HOSTILE,
        HOSTILE, HOSTILE, 1, HOSTILE, now(), HOSTILE, jsonb_build_object(HOSTILE, HOSTILE)::text,
        convert_to(HOSTILE, 'UTF8'))",
    "INSERT INTO twinbox.dead_letters (consumer, message_id, reason, error, fingerprint, attempts, event_id,
        source, type, version, key, time, content_type, payload)
     SELECT 'billing.invoice', gen_random_uuid(), 'rejected', 'order ' || n || ' has no customer',
        'eeeeeeeeeeee', 1, 'order-' || n,
        'shop', 'orders.placed', 1, 'customer-' || n % 5, now(), 'application/json', '{}'
     FROM generate_series(1, 120) n",
    "INSERT INTO twinbox.parked_deliveries (consumer, partition, next_attempt_at, message_id, event_id,
        source, type, version, key, time, content_type, payload)
     VALUES ('billing.invoice', 1, now() + interval '1 hour', gen_random_uuid(), HOSTILE,
        HOSTILE, HOSTILE, 1, HOSTILE, now(), HOSTILE, convert_to(HOSTILE, 'UTF8'))",
    "INSERT INTO twinbox.partition_leases (consumer, partition, types, log, sequence, last_message)
     SELECT 'billing.invoice', n, 'orders.placed', HOSTILE, n * 100, HOSTILE FROM generate_series(0, 3) n",
    "INSERT INTO twinbox.side_effects (id, source_id, kind, vendor, key, state, target, headers, request,
        attempts, next_attempt_at, fired_at, http_code, error_code, last_error, provider_ref)
     SELECT gen_random_uuid(), gen_random_uuid(), k, HOSTILE, HOSTILE, s, HOSTILE,
        jsonb_build_object(HOSTILE, HOSTILE)::text, convert_to(HOSTILE, 'UTF8'),
        1, NULL, now(), 500, CASE s WHEN 'failed' THEN 'VALIDATION.rejected' END, HOSTILE, HOSTILE
     FROM unnest(array['a:' || HOSTILE, 'b', 'c']) WITH ORDINALITY AS k (k, n)
     JOIN unnest(array['unknown', 'failed', 'confirmed']) WITH ORDINALITY AS s (s, n) USING (n)",
    "INSERT INTO twinbox.vendors (vendor, pause_reason) VALUES (HOSTILE, HOSTILE)",
    "INSERT INTO twinbox.jobs (id, schedule, time_zone) VALUES (HOSTILE, HOSTILE, HOSTILE)",
    "INSERT INTO twinbox.job_runs (run_id, job_id, scheduled_for, state, last_error)
     VALUES (gen_random_uuid(), HOSTILE, now(), 'failed', HOSTILE)",
    "INSERT INTO twinbox.drift_findings (check_id, object_id, detail, run_id)
     VALUES (HOSTILE, HOSTILE, HOSTILE, gen_random_uuid())",
    "INSERT INTO twinbox.audit (operator, command, target, reason, count)
     SELECT HOSTILE, HOSTILE, HOSTILE, HOSTILE, NULLIF(n, 1) FROM generate_series(1, 3) n",
    "INSERT INTO twinbox.bulk_actions (action, filter, spacing, planned, audit_id, made_by, reason)
     VALUES ('discard', jsonb_build_object('consumer', HOSTILE, 'key', HOSTILE)::text, 0, 5, 1, HOSTILE,
        HOSTILE);
     INSERT INTO twinbox.replays (token, destination, selection, p, w, position, first_position,
        last_position, selected, made_by, reason)
     VALUES (gen_random_uuid(), HOSTILE, jsonb_build_object('key', HOSTILE)::text, 0, 0, 0, 1,
        5, 5, HOSTILE, HOSTILE);
     ALTER TABLE twinbox.idempotency_keys DISABLE TRIGGER refuse_commit;
     INSERT INTO twinbox.idempotency_keys (slot, tenant, principal, scope, key, request_hash, hash_alg,
        recovery_point, expires_at)
     VALUES (sha256('a'), HOSTILE, HOSTILE, HOSTILE, HOSTILE, '', 'a', HOSTILE, now())",
];
