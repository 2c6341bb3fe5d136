-- Scheduled jobs, as the processes that run them have registered them.
CREATE TABLE {jobs} (
    id TEXT PRIMARY KEY CHECK (length(CAST(id AS BLOB)) BETWEEN 1 AND 120),
    schedule TEXT NOT NULL CHECK (length(CAST(schedule AS BLOB)) <= 255),
    time_zone TEXT NOT NULL CHECK (length(CAST(time_zone AS BLOB)) <= 255),
    -- Scheduled runs up to this time have a row, or were left out.
    decided_until INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

-- The runs of jobs. The insert of a row elects the process that runs it.
CREATE TABLE {job_runs} (
    -- Derived from job and scheduled_for, the same in all processes. A manual run has a new UUIDv7.
    run_id BLOB PRIMARY KEY NOT NULL CHECK (length(run_id) = 16),
    job_id TEXT NOT NULL CHECK (length(CAST(job_id AS BLOB)) BETWEEN 1 AND 120),
    scheduled_for INTEGER NOT NULL,
    is_manual INTEGER NOT NULL DEFAULT false,
    -- 'pending': it waits for a process, or for its next attempt.
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'running', 'done', 'failed')),
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    -- The process that runs it. `next_attempt_at` is the end of its lease.
    owner BLOB,
    -- From when on a process may take it. NULL: it has ended.
    next_attempt_at INTEGER DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    http_code INTEGER,
    last_error TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    started_at INTEGER,
    finished_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX {job_runs_open} ON {job_runs} (job_id, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
-- For operators.
CREATE INDEX {job_runs_job} ON {job_runs} (job_id, scheduled_for);
-- For the purge.
CREATE INDEX {job_runs_finished_at} ON {job_runs} (finished_at) WHERE finished_at IS NOT NULL;
