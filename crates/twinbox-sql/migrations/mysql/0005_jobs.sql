-- Scheduled jobs, as the processes that run them have registered them.
CREATE TABLE IF NOT EXISTS {jobs} (
    id VARBINARY(120) NOT NULL PRIMARY KEY CHECK (LENGTH(id) >= 1),
    schedule VARBINARY(255) NOT NULL,
    time_zone VARBINARY(255) NOT NULL,
    -- Scheduled runs up to this time have a row, or were left out.
    decided_until DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(decided_until) * DAYOFMONTH(decided_until) > 0
            AND DAYOFMONTH(decided_until) <= COALESCE(DAYOFMONTH(LAST_DAY(decided_until)), 0))
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The runs of jobs. The insert of a row elects the process that runs it.
CREATE TABLE IF NOT EXISTS {job_runs} (
    -- Derived from job and scheduled_for, the same in all processes. A manual run has a new UUIDv7.
    run_id BINARY(16) NOT NULL PRIMARY KEY,
    job_id VARBINARY(120) NOT NULL CHECK (LENGTH(job_id) >= 1),
    scheduled_for DATETIME(6) NOT NULL CHECK (MONTH(scheduled_for) * DAYOFMONTH(scheduled_for) > 0
        AND DAYOFMONTH(scheduled_for) <= COALESCE(DAYOFMONTH(LAST_DAY(scheduled_for)), 0)),
    is_manual BOOLEAN NOT NULL DEFAULT FALSE,
    -- 'pending': it waits for a process, or for its next attempt.
    state VARBINARY(64) NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'running', 'done', 'failed')),
    attempts BIGINT NOT NULL DEFAULT 0,
    failures BIGINT NOT NULL DEFAULT 0,
    -- The process that runs it. `next_attempt_at` is the end of its lease.
    owner BINARY(16),
    -- From when on a process may take it. NULL: it has ended.
    next_attempt_at DATETIME(6) DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(next_attempt_at) * DAYOFMONTH(next_attempt_at) > 0
            AND DAYOFMONTH(next_attempt_at) <= COALESCE(DAYOFMONTH(LAST_DAY(next_attempt_at)), 0)),
    http_code BIGINT,
    last_error TEXT,
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(created_at) * DAYOFMONTH(created_at) > 0
            AND DAYOFMONTH(created_at) <= COALESCE(DAYOFMONTH(LAST_DAY(created_at)), 0)),
    started_at DATETIME(6) CHECK (MONTH(started_at) * DAYOFMONTH(started_at) > 0
        AND DAYOFMONTH(started_at) <= COALESCE(DAYOFMONTH(LAST_DAY(started_at)), 0)),
    finished_at DATETIME(6) CHECK (MONTH(finished_at) * DAYOFMONTH(finished_at) > 0
        AND DAYOFMONTH(finished_at) <= COALESCE(DAYOFMONTH(LAST_DAY(finished_at)), 0)),
    -- For runs with a time. The others come first in the index, and no statement reads them there.
    INDEX job_runs_open (job_id, next_attempt_at),
    -- For operators.
    INDEX job_runs_job (job_id, scheduled_for),
    -- For the purge.
    INDEX job_runs_finished_at (finished_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
