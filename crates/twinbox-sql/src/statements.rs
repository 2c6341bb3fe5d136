//! Every statement that the databases share.
use crate::{
    Dialect,
    codec::Codecs,
    operation::statements as operation,
    parking::{
        self,
        statements::{DELIVERIES, LOG},
    },
    replay::REPLAY,
    sql::Statement,
    unread,
};

macro_rules! statements {
    ($($name:ident: $text:expr;)*) => {
        /// The statements of one store, rendered.
        #[derive(Debug)]
        pub struct Statements {
            /// The service whose store this is.
            pub(crate) service: String,
            pub(crate) namespace: String,
            pub(crate) codecs: Codecs,
            /// Prepared once for each connection. Behind a pooler a name may mean another's statement.
            pub(crate) named: bool,
            $(pub(crate) $name: Statement,)*
        }

        impl Statements {
            pub(crate) fn new<DB: Dialect>(namespace: &str, service: &str, named: bool) -> Self {
                Self {
                    service: service.to_owned(),
                    namespace: namespace.to_owned(),
                    codecs: Codecs::default(),
                    named,
                    $($name: Statement::new::<DB>(namespace, &$text, named),)*
                }
            }
        }
    };
}

statements! {
    now: "SELECT {now}";
    run: DB::RUN;
    is_run: "SELECT {is_run}";
    begin_run: DB::BEGIN_RUN.unwrap_or_default();
    service_of: "SELECT service FROM {meta}";
    set_service: "INSERT INTO {meta} (singleton, service) VALUES (true, ?) ON CONFLICT DO NOTHING";
    schema_version: "SELECT version, compatible_from FROM {migrations} ORDER BY version DESC LIMIT 1";
    record_migration: "INSERT INTO {migrations} (version, name, compatible_from) VALUES (?, ?, ?)";

    publish: "INSERT INTO {outbox} ({published}) \
        VALUES (?, ?, ?, ?, ?, COALESCE(?, {now}), ?, ?, ?, ?, ?, ?)";
    publish_all: DB::PUBLISH_ALL;

    delay: "INSERT INTO {delayed} ({published}, message_id, not_before) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    // By delayed_message_id.
    cancel: "DELETE FROM {delayed} WHERE message_id = ?";
    // By delayed_due.
    delayed_next: "SELECT not_before, {now} FROM {delayed} ORDER BY not_before, nth LIMIT 1";
    move_due: DB::MOVE_DUE;
    forget_moved: DB::FORGET_MOVED.unwrap_or_default();

    // By primary key (destination).
    cursor_create: "INSERT INTO {cursors} (destination, p, w, partitions, started_at) VALUES (?, ?, ?, ?, {now}) \
        ON CONFLICT DO NOTHING";
    cursor_exists: "SELECT partitions, lease_until = {never} FROM {cursors} WHERE destination = ?";
    cursor_take: "UPDATE {cursors} SET epoch = epoch + 1, owner = ?, lease_until = {after}, lease = ? \
        WHERE destination = ? AND ({expired} OR owner = ?)";
    cursor_read: "SELECT p, w, position, epoch, held FROM {cursors} WHERE destination = ? AND owner = ?";
    cursor_advance: "UPDATE {cursors} SET p = ?, w = ?, position = ?, ahead_p = ?, ahead_w = ?, lease_until = {after} \
        WHERE destination = ? AND epoch = ? AND owner = ? AND p = ? AND w = ? AND position = ? AND {is_run} RETURNING held";
    cursor_hold: "UPDATE {cursors} SET held = ? WHERE destination = ?";
    cursor_release: "UPDATE {cursors} SET lease_until = {now}, owner = NULL \
        WHERE destination = ? AND epoch = ? AND owner = ?";
    log_any: "SELECT 1 FROM {outbox} LIMIT 1";
    log_newest: DB::NEWEST;
    log_bounds: DB::BOUNDS;
    log_page: DB::PAGE;
    log_thin: DB::THIN.unwrap_or_default();
    log_start_now: DB::START_NOW;
    log_start_at: DB::START_AT;

    purge: DB::PURGE;
    purge_ticks: DB::PURGE_TICKS.unwrap_or_default();
    held_by: "SELECT destination FROM {cursors} c WHERE lease_until < {never} AND {behind} ORDER BY p LIMIT 1";
    // A replay begins far behind.
    lagging: "SELECT destination FROM {cursors} c WHERE lease_until < {never} AND destination NOT LIKE 'replay:%' \
        AND {behind} ORDER BY destination";
    // A lease that nobody has and that never ends: no reader gets the cursor, one of an older version included.
    detach: "UPDATE {cursors} AS c SET epoch = epoch + 1, owner = NULL, lease_until = {never} \
        WHERE lease_until < {never} AND destination NOT LIKE 'replay:%' AND {behind} RETURNING destination";
    // By primary key (destination), both.
    retire_cursor: "DELETE FROM {cursors} WHERE destination = ? AND (owner IS NULL OR {expired})";
    retire_parked: "DELETE FROM {parked} WHERE destination = ?";
    readers: &format!("SELECT destination, CASE WHEN lease_until < {{never}} THEN {} ELSE 0 END, held, \
        lease_until = {{never}}, started_at FROM {{cursors}} WHERE destination NOT LIKE 'replay:%' ORDER BY destination", DB::LEASE_LEFT);
    backlog: DB::BACKLOG;

    // By primary key (destination), of cursors.
    replay_bound: "SELECT p, w, position, lease_until = {never} FROM {cursors} WHERE destination = ?";
    replay_start: DB::START_BEHIND;
    replay_make: "INSERT INTO {replays} (token, destination, consumer, selection, p, w, position, first, last, selected, \
        rate, made_by, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id";
    replay_cursor: "INSERT INTO {cursors} (destination, p, w) VALUES (?, ?, ?)";
    // By primary key (id).
    replay: format!("{REPLAY} WHERE r.id = ?");
    replays: format!("{REPLAY} ORDER BY r.id DESC LIMIT ?");
    // By replays_running.
    replays_running: "SELECT DISTINCT destination FROM {replays} WHERE state = 'running'";
    replay_next: format!("{REPLAY} WHERE r.destination = ? AND r.state = 'running' AND c.held IS NULL \
        AND NOT EXISTS (SELECT 1 FROM {{cursors}} d WHERE d.destination = r.destination AND d.held IS NOT NULL) \
        ORDER BY r.id LIMIT 1");
    replay_held: "SELECT held FROM {cursors} WHERE destination = ?";
    replay_end: "UPDATE {replays} SET state = ?, ended_at = {now} WHERE id = ? AND state = 'running'";
    // Nobody's any more. Whoever purges the log deletes it.
    replay_detach: "UPDATE {cursors} SET epoch = epoch + 1, owner = NULL, lease_until = {never} WHERE destination = ?";
    replay_cancel_all: "UPDATE {replays} SET state = 'cancelled', ended_at = {now} \
        WHERE destination = COALESCE(?, destination) AND state = 'running'";
    replay_detach_ended: "UPDATE {cursors} SET epoch = epoch + 1, owner = NULL, lease_until = {never} \
        WHERE lease_until < {never} AND destination IN ( \
            SELECT 'replay:' || id FROM {replays} WHERE destination = COALESCE(?, destination) AND state <> 'running')";
    replay_forget_parked: "DELETE FROM {parked} WHERE destination IN (SELECT 'replay:' || id FROM {replays} \
        WHERE state <> 'running' AND ended_at < (SELECT {after}))";
    replay_forget_cursors: "DELETE FROM {cursors} WHERE lease_until = {never} AND destination IN ( \
        SELECT 'replay:' || id FROM {replays} WHERE state <> 'running')";
    purge_marks_since: "SELECT consumer, time FROM {purge_marks} WHERE time >= ? ORDER BY consumer";
    // By primary key (consumer, message_id, replay); and by that of the inbox.
    supersede: "INSERT INTO {inbox_superseded} (consumer, message_id, replay, state, payload_hash, claimed_at) \
        SELECT a.consumer, a.message_id, a.replay, i.state, i.payload_hash, i.claimed_at \
        FROM (SELECT ? AS consumer, ? AS message_id, ? AS replay) a \
        LEFT JOIN {inbox} i ON i.consumer = a.consumer AND i.message_id = a.message_id WHERE {bounded} \
        ON CONFLICT DO NOTHING";
    superseded: "DELETE FROM {inbox} WHERE consumer = ? AND message_id = ? AND claimed_at < ?";
    purge_superseded: "DELETE FROM {inbox_superseded} WHERE consumer = ? AND superseded_at < (SELECT {after})";
    // By primary key (destination, position).
    parked_states: "SELECT state, count(*) FROM {parked} WHERE destination = ? GROUP BY state";

    // By primary key (destination), of cursors: nobody else owns the cursor until the transaction ends.
    parked_fence: format!("SELECT 1 FROM {{cursors}} WHERE destination = ? AND epoch = ? AND owner = ? \
        AND {{is_run}}{}", DB::LOCK_ROW);
    park: parking::statements::park::<DB>();
    parked_among: "SELECT position FROM {parked} WHERE destination = ? AND position BETWEEN ? AND ?";
    parked_heads: LOG.heads::<DB>();
    parked_keyless: LOG.keyless();
    parked_next_keyless: LOG.next_keyless::<DB>();
    parked_run: LOG.run();
    parked_sizes: LOG.sizes();
    parked_count: LOG.count();
    unpark: LOG.delete();
    // By primary key (position).
    messages_among: "SELECT position, {message} FROM {outbox} WHERE position {among}";
    parked: "SELECT p.position, p.state, p.attempts, p.first_error, p.last_error, o.* FROM {parked} p \
        JOIN (SELECT position AS at, {message} FROM {outbox}) o ON o.at = p.position \
        WHERE p.destination = ? ORDER BY p.position LIMIT ?";

    // By primary key (consumer, message_id).
    claim: DB::CLAIM;
    claim_one: DB::CLAIM_ONE.unwrap_or_default();
    purge_mark: "SELECT time FROM {purge_marks} WHERE consumer = ?";
    purge_mark_moves: "INSERT INTO {purge_marks} AS m (consumer, time) VALUES (?, ?) \
        ON CONFLICT (consumer) DO UPDATE SET time = excluded.time WHERE excluded.time > m.time";
    // By inbox_claimed_at, both. Claims of one transaction have one time.
    purgeable_claims: "SELECT max(claimed_at), max(COALESCE(time, claimed_at)) FROM {inbox} \
        WHERE consumer = ? AND claimed_at <= (SELECT max(claimed_at) FROM ( \
            SELECT claimed_at FROM {inbox} WHERE consumer = ? AND claimed_at < (SELECT {after}) \
            ORDER BY claimed_at LIMIT ?) oldest)";
    purge_claims: DB::PURGE_CLAIMS;
    // Of what is claimed, a copy has failed. While the claim is there to tell that it was handled.
    purge_attempts: "DELETE FROM {attempts} AS a WHERE a.consumer = ? \
        AND (EXISTS (SELECT 1 FROM {inbox} i WHERE i.consumer = a.consumer AND i.message_id = a.message_id) \
            OR a.last_failed_at < (SELECT {after}) AND a.starts = 0)";
    oldest_waiting: "SELECT min(time) FROM ( \
        SELECT time FROM {parked_deliveries} WHERE consumer = ? UNION ALL \
        SELECT o.time FROM {parked} p JOIN {outbox} o ON o.position = p.position \
        WHERE p.destination = ? AND p.state <> 'dead') waiting";
    set_state: "UPDATE {inbox} SET state = ? WHERE consumer = ? AND message_id = ?";
    claimed: "SELECT payload_hash, state FROM {inbox} WHERE consumer = ? AND message_id = ?";
    failures: "SELECT failures FROM {attempts} WHERE consumer = ? AND message_id = ?";
    forget_failures: "DELETE FROM {attempts} WHERE consumer = ? AND message_id = ?";
    record_failure: "INSERT INTO {attempts} AS a (consumer, message_id, failures, last_error) VALUES (?, ?, 1, ?) \
        ON CONFLICT (consumer, message_id) DO UPDATE SET failures = a.failures + 1, starts = 0, \
        last_error = excluded.last_error, last_failed_at = excluded.last_failed_at";
    start: "INSERT INTO {attempts} AS a (consumer, message_id, failures, last_error, starts) \
        SELECT ?, ?, 0, '', 1 WHERE {bounded} AND {unflushed} \
        AND NOT EXISTS (SELECT 1 FROM {inbox} WHERE consumer = ? AND message_id = ?) \
        ON CONFLICT (consumer, message_id) DO UPDATE SET starts = 1 WHERE a.starts = 0";
    start_alone: "UPDATE {attempts} SET starts = starts + 1 WHERE {bounded} AND consumer = ? AND message_id = ?";
    starts: "SELECT starts FROM {attempts} WHERE consumer = ? AND message_id = ?";
    forget_start: "DELETE FROM {attempts} WHERE {bounded} AND consumer = ? AND message_id = ? AND failures = 0";
    end_start: "UPDATE {attempts} SET starts = 0 WHERE {bounded} AND consumer = ? AND message_id = ?";
    bury: "INSERT INTO {dead_letters} (consumer, reason, error, attempts, message_id, sequence, event_id, source, type, \
        version, key, subject, time, correlation_id, causation_id, traceparent, content_type, headers, payload) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    // By primary key, all of them but the purge. A key is free when it has expired, and for the request that it belongs
    // to when the lease of who is at it has ended. What is unfinished does not expire: somebody may have been charged.
    claim_operation: format!("{}INSERT INTO {{idempotency_keys}} AS k (slot, tenant, principal, scope, key, request_hash, \
        hash_alg, owner, lease_until, expires_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, {{after}}, {{after}} {} \
        ON CONFLICT (slot) DO UPDATE SET principal = excluded.principal, key = excluded.key, request_hash = excluded.request_hash, \
        hash_alg = excluded.hash_alg, owner = excluded.owner, lease_until = excluded.lease_until, status = 'pending', \
        http_code = NULL, response_headers = NULL, response_body = NULL, body_kind = 'omitted', result_ref = NULL, \
        codec_headers = NULL, attempts = CASE WHEN k.unfinished OR k.expires_at > {{now}} THEN k.attempts + 1 ELSE 1 END, \
        uncounted = CASE WHEN k.unfinished OR k.expires_at > {{now}} THEN k.uncounted ELSE 0 END, \
        recovery_point = CASE WHEN k.unfinished THEN k.recovery_point END, \
        tokens = CASE WHEN k.unfinished THEN k.tokens END, \
        created_at = CASE WHEN k.unfinished OR k.expires_at > {{now}} THEN k.created_at ELSE {{now}} END, \
        updated_at = {{now}}, expires_at = excluded.expires_at \
        WHERE (k.lease_until IS NULL OR k.lease_until <= {{now}}) AND ((NOT k.unfinished AND k.expires_at <= {{now}}) \
            OR (k.status = 'pending' AND k.request_hash = excluded.request_hash AND k.principal = excluded.principal)) \
        RETURNING attempts, attempts - 1 - uncounted AS failures, recovery_point, created_at, tokens{}", DB::CLAIM_OPERATION[0], DB::CLAIM_OPERATION[1], DB::CLAIM_OPERATION[2]);
    find_operation: operation::FIND_OPERATION;
    // As an insert that always conflicts: it goes by the primary key even where the plan is from when the table was empty.
    answer_operation: format!("INSERT INTO {{idempotency_keys}} AS k (status, http_code, response_headers, response_body, \
        body_kind, result_ref, codec_headers, slot, tenant, principal, scope, key, request_hash, hash_alg, expires_at) \
        SELECT ?, ?, ?, ?, ?, ?, ?, ?, '', '', '', '', {}, '', {{now}} WHERE {} ON CONFLICT (slot) DO UPDATE SET \
        status = excluded.status, http_code = excluded.http_code, response_headers = excluded.response_headers, \
        response_body = excluded.response_body, body_kind = excluded.body_kind, result_ref = excluded.result_ref, \
        codec_headers = excluded.codec_headers, lease_until = NULL, updated_at = {{now}} RETURNING hash_alg", DB::ANSWER_GUARDED[0], DB::ANSWER_GUARDED[1]);
    enter_operation: operation::ENTER_OPERATION;
    save_operation: operation::SAVE_OPERATION;
    token_time: operation::TOKEN_TIME;
    give_token: operation::GIVE_TOKEN;
    renew_operation: "UPDATE {idempotency_keys} SET lease_until = {after} \
        WHERE {bounded} AND slot = ? AND owner = ? AND status = 'pending'";
    release_operation: operation::RELEASE_OPERATION;
    forget_operation: operation::FORGET_OPERATION;
    unfinished_operations: operation::UNFINISHED_OPERATIONS;
    count_unfinished: operation::COUNT_UNFINISHED;
    forget_unfinished: operation::FORGET_UNFINISHED;
    live_operations: operation::LIVE_OPERATIONS;
    erase_operations_page: operation::ERASE_OPERATIONS_PAGE;
    erase_operations: operation::ERASE_OPERATIONS;
    // By primary key, both.
    receive: format!("{}INSERT INTO {{webhook_receipts}} AS r (provider, endpoint, dedup_id, dedup_basis, payload_hash, \
        secret, expires_at) SELECT ?, ?, ?, ?, ?, ?, {{after}} {} ON CONFLICT (provider, endpoint, dedup_id) \
        DO UPDATE SET dedup_basis = excluded.dedup_basis, payload_hash = excluded.payload_hash, \
        secret = excluded.secret, received_at = {{now}}, expires_at = excluded.expires_at \
        WHERE r.expires_at <= {{now}} RETURNING {}", DB::RECEIVE[0], DB::RECEIVE[1], DB::RECEIVE[2]);
    received: "SELECT payload_hash FROM {webhook_receipts} WHERE provider = ? AND endpoint = ? AND dedup_id = ?";
    // By webhook_receipts_expires_at.
    purge_receipts: DB::PURGE_RECEIPTS;
    // By idempotency_keys_expires_at.
    purge_operations: DB::PURGE_OPERATIONS;
    // By primary key (consumer, member).
    member_stays: "INSERT INTO {members} (consumer, member, lease_until, lease) VALUES (?, ?, {after}, ?) \
        ON CONFLICT (consumer, member) DO UPDATE SET lease_until = excluded.lease_until, lease = excluded.lease";
    members_gone: "DELETE FROM {members} WHERE consumer = ? AND {expired}";
    member_leaves: "DELETE FROM {members} WHERE consumer = ? AND member = ?";
    members: "SELECT member FROM {members} WHERE consumer = ? ORDER BY member";
    // By primary key (consumer, partition), of places.
    place_create: "INSERT INTO {places} (consumer, partition, types) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
    places_of_others: "SELECT types FROM {places} WHERE consumer = ? AND types <> ? LIMIT 1";
    places_renew: "UPDATE {places} SET lease_until = {after} WHERE consumer = ? AND owner = ? RETURNING partition, epoch";
    places_free: "SELECT partition FROM {places} WHERE consumer = ? AND {expired} ORDER BY partition";
    place_take: "UPDATE {places} SET owner = ?, epoch = epoch + 1, lease_until = {after}, lease = ? \
        WHERE consumer = ? AND partition = ? AND {expired} RETURNING epoch, log, sequence, message";
    place_settle: "UPDATE {places} SET log = ?, sequence = ?, message = ? \
        WHERE consumer = ? AND partition = ? AND epoch = ? AND {is_run}";
    place_release: "UPDATE {places} SET owner = NULL, lease_until = {now} \
        WHERE consumer = ? AND partition = ? AND epoch = ? AND {is_run}";
    fence: DB::FENCE;
    fence_out: DB::FENCE_OUT.unwrap_or_default();
    park_delivery: DB::PARK_DELIVERY;
    // By primary key.
    delivery_waits: "UPDATE {parked_deliveries} SET next_attempt_at = {after} WHERE consumer = ? AND partition = ? AND id = ?";
    deliveries_among: "SELECT id, event_id, source, type, version, key, subject, time, correlation_id, causation_id, \
        traceparent, content_type, headers, payload, message_sequence FROM {parked_deliveries} \
        WHERE consumer = ? AND partition = ? AND id {among}";
    deliveries_heads: DELIVERIES.heads::<DB>();
    deliveries_keyless: DELIVERIES.keyless();
    deliveries_next_keyless: DELIVERIES.next_keyless::<DB>();
    deliveries_run: DELIVERIES.run();
    deliveries_sizes: DELIVERIES.sizes();
    deliveries_count: DELIVERIES.count();
    // By parked_deliveries_key. When the partition is taken.
    deliveries_bytes: "SELECT CAST(COALESCE(sum(length(payload)), 0) AS BIGINT) FROM {parked_deliveries} \
        WHERE consumer = ? AND partition = ?";
    unpark_deliveries: DELIVERIES.delete();
    // By parked_deliveries_key.
    deliveries_parked: "SELECT count(*) FROM {parked_deliveries} WHERE consumer = ?";

    // By primary key, all eight: a page of each table, and what has the key in it. The payload is not read.
    redact_delayed_page: "SELECT max(nth) FROM (SELECT nth FROM {delayed} WHERE nth > ? ORDER BY nth LIMIT ?) page";
    redact_delayed: "UPDATE {delayed} SET payload = ?, headers = ? WHERE key = ? AND nth > ? AND nth <= ?";
    redact_log_page: "SELECT max(position) FROM \
        (SELECT position FROM {outbox} WHERE position > ? ORDER BY position LIMIT ?) page";
    // In turn with who purges, for each locks many rows and in another order.
    redact_log: "UPDATE {outbox} SET payload = ?, headers = ? WHERE {turn} AND key = ? AND position > ? AND position <= ?";
    redact_parked_page: "SELECT max(id) FROM \
        (SELECT id FROM {parked_deliveries} WHERE id > ? ORDER BY id LIMIT ?) page";
    redact_parked: "UPDATE {parked_deliveries} SET payload = ?, headers = ? WHERE key = ? AND id > ? AND id <= ?";
    redact_letters_page: "SELECT max(id) FROM (SELECT id FROM {dead_letters} WHERE id > ? ORDER BY id LIMIT ?) page";
    redact_letters: "UPDATE {dead_letters} SET payload = ?, headers = ?, error = 'redacted' \
        WHERE key = ? AND id > ? AND id <= ?";
    // By primary key, backwards.
    dead_letters: "SELECT event_id, source, type, version, key, subject, time, correlation_id, causation_id, \
        traceparent, content_type, headers, payload, sequence, reason, error, attempts, id FROM {dead_letters} \
        WHERE consumer = ? ORDER BY id DESC LIMIT ?";
    // By dead_letters_redrive.
    letters_take: format!("UPDATE {{dead_letters}} SET redrive_at = {{after}}, redrives_left = redrives_left - 1 WHERE id IN ( \
        SELECT id FROM {{dead_letters}} d WHERE consumer = ? AND redrives_left > 0 AND redrive_at <= (SELECT {{now}}) \
        AND NOT (? AND EXISTS (SELECT 1 FROM {{dead_letters}} b WHERE b.consumer = d.consumer AND b.key = d.key \
            AND b.id < d.id AND b.redrives_left > 0 AND b.redrive_at > (SELECT {{now}}))) \
        ORDER BY redrive_at LIMIT ?{}) RETURNING event_id, source, type, version, key, subject, time, correlation_id, \
        causation_id, traceparent, content_type, headers, payload, sequence, reason, error, attempts, id, redrives_left",
        DB::PASS_BY_LOCKED);
    letters_due: "SELECT 1 FROM {dead_letters} WHERE consumer = ? AND redrives_left > 0 AND redrive_at <= (SELECT {now}) LIMIT 1";
    // By primary key (id), all of them. A server that forgot may have given the id to another message.
    letter_redrive: "UPDATE {dead_letters} SET redrive_at = {after}, redrives_left = ? WHERE id = ? AND redrives_left = 0";
    letter_failed: "UPDATE {dead_letters} SET error = ?, attempts = attempts + 1, died_at = {now}, redrive_at = {after}, \
        redrives_left = redrives_left * ? WHERE id = ? AND message_id = ?";
    letter_claim: "DELETE FROM {dead_letters} WHERE id = ? AND redrives_left = ? AND message_id = ?";
    letter_give_back: "UPDATE {dead_letters} SET redrives_left = redrives_left + 1, redrive_at = {after} \
        WHERE id = ? AND redrives_left = ? AND message_id = ?";
    letter_delete: "DELETE FROM {dead_letters} WHERE id = ?";
    letter_message: "SELECT event_id, source, type, version, key, subject, time, correlation_id, causation_id, traceparent, \
        content_type, headers, payload, sequence FROM {dead_letters} WHERE id = ?";
    letters_page: "SELECT id, consumer, event_id, source, type, key, reason, error, attempts, time, died_at, \
        redrives_left > 0, message_id FROM {dead_letters} WHERE id > ? ORDER BY id LIMIT ?";
    // By primary key (destination, position), all of them.
    given_up_page: "SELECT p.position, p.destination, o.id, o.source, o.type, o.key, p.state, p.last_error, p.attempts, \
        o.time, p.parked_at, false, CAST(NULL AS {uuid}) FROM {parked} p JOIN {outbox} o ON o.position = p.position \
        WHERE p.state <> 'waiting' AND p.destination NOT LIKE 'replay:%' AND (p.destination, p.position) > (?, ?) \
        ORDER BY p.destination, p.position LIMIT ?";
    given_up_message: "SELECT {message} FROM {outbox} WHERE position = ? AND position IN ( \
        SELECT position FROM {parked} WHERE destination = ? AND state <> 'waiting')";
    parked_redrive: "UPDATE {parked} SET state = 'waiting', holds = true, attempts = 0, next_attempt_at = {after} \
        WHERE destination = ? AND position = ? AND state <> 'waiting'";
    parked_discard: "DELETE FROM {parked} WHERE destination = ? AND position = ? AND state <> 'waiting'";
    // By primary key (consumer, message_id).
    unbury: "DELETE FROM {inbox} WHERE consumer = ? AND message_id = ? AND state <> 'processed'";

    // By primary key (destination, position); the message by outbox_id.
    parked_skip: "UPDATE {parked} SET state = 'dead', holds = false WHERE destination = ? AND position IN ( \
        SELECT position FROM {outbox} WHERE id = ?) AND holds = true";
    // By parked_key.
    parked_release: "UPDATE {parked} SET state = 'dead', holds = false \
        WHERE destination = ? AND key = ? AND holds = true AND state <> 'waiting'";
    // By outbox_id.
    trail_log: "SELECT position, {message} FROM {outbox} WHERE id = ? ORDER BY position LIMIT ?";
    trail_parked: "SELECT state, attempts, last_error FROM {parked} WHERE destination = ? AND position = ?";
    // By primary key (consumer, message_id), of each consumer.
    trail_claims: "SELECT c.consumer, i.state, i.claimed_at, a.failures, a.last_error, \
        (SELECT count(*) FROM {inbox_superseded} s WHERE s.consumer = c.consumer AND s.message_id = ?) \
        FROM {consumers} c LEFT JOIN {inbox} i ON i.consumer = c.consumer AND i.message_id = ? \
        LEFT JOIN {attempts} a ON a.consumer = c.consumer AND a.message_id = ? ORDER BY c.consumer";
    trail_event: "SELECT i.source, i.event_id FROM {consumers} c \
        JOIN {inbox} i ON i.consumer = c.consumer AND i.message_id = ? LIMIT 1";

    // By primary key.
    consumer_runs: "INSERT INTO {consumers} (consumer) VALUES (?) \
        ON CONFLICT (consumer) DO UPDATE SET seen_at = {now} RETURNING paused";
    consumer_forget: "DELETE FROM {consumers} WHERE consumer = ?";
    consumer_paused: "SELECT paused FROM {consumers} WHERE consumer = ?";
    consumer_pause: "UPDATE {consumers} SET paused = ? WHERE consumer = ?";
    consumers: "SELECT c.consumer, c.seen_at, {now}, c.paused, \
        (SELECT count(*) FROM {dead_letters} d WHERE d.consumer = c.consumer), \
        (SELECT count(*) FROM {parked_deliveries} d WHERE d.consumer = c.consumer) \
        FROM {consumers} c ORDER BY c.consumer";
    // By parked_deliveries_key.
    parked_of: "SELECT d.id, d.event_id, d.message_id, d.type, d.key, d.parked_at, d.next_attempt_at, a.failures, a.last_error \
        FROM {parked_deliveries} d \
        LEFT JOIN {attempts} a ON a.consumer = d.consumer AND a.message_id = d.message_id \
        WHERE d.consumer = ? ORDER BY d.id LIMIT ?";
    parked_of_now: "UPDATE {parked_deliveries} SET next_attempt_at = {now} \
        WHERE consumer = ? AND key = COALESCE(?, key) AND next_attempt_at > {now}";
    facts: DB::FACTS;
    audit_begin: "INSERT INTO {audit} (who, what, target, reason) VALUES (?, ?, ?, ?) RETURNING id";
    audit_end: "UPDATE {audit} SET count = ? WHERE id = ?";
    audited: "SELECT id, at, who, what, target, reason, count FROM {audit} ORDER BY id DESC LIMIT ?";

    unread_delayed: unread::count("false", "''", "id", "{delayed} o WHERE true");
    unread_cursors: "SELECT destination FROM {cursors} \
        WHERE lease_until < {never} AND destination NOT LIKE 'replay:%' ORDER BY destination";
    // By outbox_txid_position.
    unread_pending: format!("{}{}", DB::SETTLED[0], unread::count("false", "''", "id", &format!("{{outbox}} o, s \
        WHERE {} AND NOT EXISTS (SELECT 1 FROM {{parked}} k \
        WHERE k.destination = ? AND k.position = o.position)", DB::SETTLED[3])));
    unread_since: unread::count("false", "''", "id", "{outbox} o WHERE o.time >= ?");
    unread_aside: [
        unread::count("p.state <> 'waiting'", "p.destination", "id",
            "{parked} p JOIN {outbox} o ON o.position = p.position WHERE p.destination NOT LIKE 'replay:%'"),
        unread::count("false", "'consumer:' || o.consumer", "event_id", "{parked_deliveries} o WHERE true"),
        // What no build can read is given up for good.
        unread::count("true", "'consumer:' || o.consumer", "event_id",
            &format!("{{dead_letters}} o WHERE o.type <> '{}'", twinbox_core::message::UNKNOWN_TYPE)),
    ].join(" UNION ALL ");

    // By primary key, backwards.
    newest_types: "SELECT DISTINCT type FROM (SELECT type FROM {outbox} ORDER BY position DESC LIMIT ?) newest \
        ORDER BY type";
    // By primary key, backwards: the newest of a type. For tests and tools.
    published: "SELECT position, {message} FROM {outbox} WHERE type = ? ORDER BY position LIMIT ?";
}
