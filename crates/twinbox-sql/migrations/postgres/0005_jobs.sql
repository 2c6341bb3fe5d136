-- Scheduled jobs, as the processes that run them have registered them.
CREATE TABLE {jobs} (
    id text PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 120),
    schedule text NOT NULL CHECK (octet_length(schedule) <= 255),
    time_zone text NOT NULL CHECK (octet_length(time_zone) <= 255),
    -- Scheduled runs up to this time have a row, or were left out.
    decided_until {point_in_time} NOT NULL DEFAULT now()
);

-- The runs of jobs. The insert of a row elects the process that runs it.
CREATE TABLE {job_runs} (
    -- Derived from job and scheduled_for, the same in all processes. A manual run has a new UUIDv7.
    run_id uuid PRIMARY KEY,
    job_id text NOT NULL CHECK (octet_length(job_id) BETWEEN 1 AND 120),
    scheduled_for {point_in_time} NOT NULL,
    is_manual boolean NOT NULL DEFAULT false,
    -- 'pending': it waits for a process, or for its next attempt.
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'running', 'done', 'failed')),
    attempts bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    -- The process that runs it. `next_attempt_at` is the end of its lease.
    owner uuid,
    -- From when on a process may take it. NULL: it has ended.
    next_attempt_at {point_in_time} DEFAULT now(),
    http_code bigint,
    last_error text,
    created_at {point_in_time} NOT NULL DEFAULT now(),
    started_at {point_in_time},
    finished_at {point_in_time}
) WITH (fillfactor = 70);
CREATE INDEX job_runs_open ON {job_runs} (job_id, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
-- For operators.
CREATE INDEX job_runs_job ON {job_runs} (job_id, scheduled_for);
-- For the purge.
CREATE INDEX job_runs_finished_at ON {job_runs} (finished_at) WHERE finished_at IS NOT NULL;
