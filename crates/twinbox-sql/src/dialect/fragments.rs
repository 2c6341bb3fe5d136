//! Parts of statements that differ between databases.
use crate::reader_name;

/// The texts that replace placeholders such as `{name}` in SQL. `{name argument}` puts the argument in the
/// place of the `?`; without one the `?` is a bind.
#[derive(Debug, Clone, Copy)]
pub struct Fragments {
    /// An expression: the time of the database.
    pub now: &'static str,
    /// An expression: the time `?` microseconds from now.
    pub after: &'static str,
    /// An expression: the microseconds until the time `?`. NULL for NULL, and a number for each other time
    /// that a column can hold: one that no calendar has is long ago, or far ahead.
    pub until: &'static str,
    /// An expression: the time `?`, or now if it is NULL or a time that the log does not take.
    pub readable: &'static str,
    /// An expression: the end of the lease of a detached cursor, which is later than any time.
    pub never: &'static str,
    /// An expression that is true, and from which on the transaction waits 2 s at most for a lock.
    pub bounded_wait: &'static str,
    /// An expression that is true, and that waits for this transaction's turn to lock many messages of the
    /// log.
    pub takes_turns: &'static str,
    /// A bind: the number of an advisory lock. Nobody makes it who may not read the secret of the tables.
    /// Empty where only rows are locked.
    pub lock_number: &'static str,
    /// An expression that makes the commit of its transaction flushed, whatever the settings of the server
    /// are.
    pub flushed: &'static str,
    /// The end of a change that returns `?`. Empty where a change returns no rows.
    pub returning: &'static str,
    /// The end of a change that makes the commit of its transaction flushed.
    pub returning_flushed: &'static str,
    /// The end of an INSERT that writes nothing if a row has the same `?`. Empty where it fails then.
    pub unless_there: &'static str,
    /// An expression that is true, and that makes the commit of its transaction not flushed.
    pub unflushed: &'static str,
    /// The end of a `SELECT` by key that locks the row until the transaction ends.
    pub lock_row: &'static str,
    /// The end of a `SELECT` that locks the rows, and skips those that another transaction has locked.
    pub skip_locked: &'static str,
    /// An expression: the server run as a number, or NULL.
    pub current_server_run: &'static str,
    /// A condition: the server run is `?`.
    pub is_server_run: &'static str,
    /// The end of a table in a `SELECT`: it is read by the index `?`. Empty where the database finds that
    /// index itself.
    pub by_index: &'static str,
    /// A condition after a number: the number is in the JSON array `?`.
    pub among: &'static str,
    /// A table expression `r`: the rows to park, from the JSON array `?`.
    pub parked_rows: &'static str,
    /// A table expression `r`: the vendors, from the JSON array `?`.
    pub vendor_rows: &'static str,
    /// A table expression `r`: the effects to send, from the JSON array `?`.
    pub taken_rows: &'static str,
    /// A table expression `r`: the results of effects, from the JSON array `?`.
    pub settled_rows: &'static str,
    /// A table expression `r`: the jobs, from the JSON array `?`.
    pub job_rows: &'static str,
    /// The column type of a message id.
    pub uuid: &'static str,
    /// The type of an integer of 64 bits, in a cast.
    pub big_integer: &'static str,
    /// The type of a text, in a cast.
    pub text: &'static str,
    /// An expression: the header `?` of message `o`.
    pub header: &'static str,
    /// An expression: the kind `?` of an effect, with a colon behind it.
    pub kind_and_colon: &'static str,
    /// An expression: the name of the replay with the number `?`, as in [`ReaderName`](crate::ReaderName).
    pub replay_cursor: &'static str,
    /// An expression: the name of the consumer `?`, as in [`ReaderName`](crate::ReaderName).
    pub log_reader: &'static str,
    /// A condition: an operation is unfinished, as `idempotency_keys_unfinished` has it.
    pub unfinished: &'static str,
    /// A condition: the cursor `c` has not settled a message older than `?` microseconds.
    pub is_behind: &'static str,
    /// The text before a `SELECT` from messages `o` that makes `s`, the ticks of a cursor. Binds: p, w.
    pub with_cursor: &'static str,
    /// A condition: the cursor has settled message `o`. Bind: position.
    pub is_settled: &'static str,
    /// A condition: the cursor has not settled message `o`. Bind: position.
    pub is_unsettled: &'static str,
    /// An SQL aggregate over rows `o` of the outbox: the place in the log before the oldest of them, where a
    /// replay of them begins.
    pub replay_start: &'static str,
}

/// The columns of a message of the log.
const MESSAGE: &str = "id AS event_id, source, type, version, key, subject, time, correlation_id,
            causation_id, traceparent, content_type, headers, payload";

/// The columns that a producer writes.
const PUBLISHED: &str = "id, type, version, key, subject, time, correlation_id, causation_id, traceparent,
            content_type, headers, payload";

/// The columns of a message that is kept outside the log.
const STORED_MESSAGE: &str = "message_id, sequence, event_id, source, type, version, key, subject, time,
            correlation_id, causation_id, traceparent, content_type, headers, payload";

/// The columns of a dead letter of a consumer.
const DEAD_LETTER: &str = "id, reason, error, attempts, sequence, event_id, source, type, version, key,
            subject, time, correlation_id, causation_id, traceparent, content_type, headers, payload";

/// The columns of a side effect.
const SIDE_EFFECT: &str = "position, id, source_id, kind, vendor, key, state, method, target, content_type,
            headers, request, codec_headers, correlation_id, traceparent, compensates, generation,
            idempotency_key, provider_key_expires_at, attempts, failures, owner, next_attempt_at,
            first_fired_at, fired_at, ended_at, provider_ref, http_code, error_code, last_error, created_at";

/// The columns of a run of a job.
const JOB_RUN: &str = "run_id, job_id, scheduled_for, is_manual, state, attempts, failures, owner,
            next_attempt_at, http_code, last_error, created_at, started_at, finished_at";

/// Whether a lease has ended. One that ends later than twice its length from now was given before the clock
/// of the database was set back.
const EXPIRED: &str = "(lease_until <= {now} OR lease_until < {never} AND lease_until > {after 2 * lease})";

/// Whether the wish of a process for the lease of another one counts. It counts for the length of a lease.
const IS_WISHED: &str = "(wished_until > {now} AND wished_until <= {after lease})";

/// Whether no process works on an unfinished operation.
const IS_UNFINISHED: &str = "{unfinished} AND (lease_until IS NULL OR lease_until <= (SELECT {now}))";

impl Fragments {
    /// What `{name}` stands for. None: it is the name of a table, index or function.
    pub(crate) fn get(&self, name: &str) -> Option<&'static str> {
        Some(match name {
            "now" => self.now,
            "after" => self.after,
            "until" => self.until,
            "readable" => self.readable,
            "never" => self.never,
            "bounded_wait" => self.bounded_wait,
            "takes_turns" => self.takes_turns,
            "lock_number" => self.lock_number,
            "flushed" => self.flushed,
            "returning" => self.returning,
            "returning_flushed" => self.returning_flushed,
            "unless_there" => self.unless_there,
            "unflushed" => self.unflushed,
            "lock_row" => self.lock_row,
            "skip_locked" => self.skip_locked,
            "current_server_run" => self.current_server_run,
            "is_server_run" => self.is_server_run,
            "by_index" => self.by_index,
            "among" => self.among,
            "parked_rows" => self.parked_rows,
            "vendor_rows" => self.vendor_rows,
            "taken_rows" => self.taken_rows,
            "settled_rows" => self.settled_rows,
            "job_rows" => self.job_rows,
            "uuid" => self.uuid,
            "big_integer" => self.big_integer,
            "header" => self.header,
            "kind_and_colon" => self.kind_and_colon,
            "replay_cursor" => self.replay_cursor,
            "log_reader" => self.log_reader,
            "unfinished" => self.unfinished,
            "is_behind" => self.is_behind,
            "with_cursor" => self.with_cursor,
            "is_settled" => self.is_settled,
            "is_unsettled" => self.is_unsettled,
            "replay_start" => self.replay_start,
            "message" => MESSAGE,
            "published" => PUBLISHED,
            "stored_message" => STORED_MESSAGE,
            "dead_letter" => DEAD_LETTER,
            "expired" => EXPIRED,
            "is_wished" => IS_WISHED,
            "is_unfinished" => IS_UNFINISHED,
            "side_effect" => SIDE_EFFECT,
            "job_run" => JOB_RUN,
            "not_replay" => reader_name::NOT_REPLAY,
            _ => return None,
        })
    }
}
