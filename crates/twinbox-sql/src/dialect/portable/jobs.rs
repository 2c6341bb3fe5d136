//! Scheduled jobs and their runs.
use crate::texts::Jobs;

pub(in crate::dialect) const JOBS: Jobs = Jobs {
    register: "
        INSERT INTO {jobs} AS j (id, schedule, time_zone, decided_until)
        VALUES (?, ?, ?, {now})
        ON CONFLICT (id) DO UPDATE
        SET schedule = excluded.schedule, time_zone = excluded.time_zone,
            decided_until = excluded.decided_until
        WHERE j.schedule <> excluded.schedule OR j.time_zone <> excluded.time_zone",
    look: "
        SELECT j.id, j.decided_until, {now} AS now, (
                SELECT {until min(o.next_attempt_at)}
                FROM {job_runs} o
                WHERE o.job_id = j.id AND o.next_attempt_at IS NOT NULL) AS due_in
        FROM {job_rows}
        JOIN {jobs} j ON j.id = r.job",
    list: "
        SELECT id, schedule, time_zone, decided_until
        FROM {jobs}
        ORDER BY id
        LIMIT ?",
    find_job: "
        SELECT id
        FROM {jobs}
        WHERE id = ?",
    lock: "
        SELECT decided_until, {now} AS now
        FROM {jobs}
        WHERE id = ?
        {lock_row}",
    decide: "
        UPDATE {jobs}
        SET decided_until = ?
        WHERE id = ? AND decided_until < ?",
    open: "
        SELECT {job_run}, {until next_attempt_at} AS due_in
        FROM {job_runs}
        WHERE job_id = ? AND next_attempt_at IS NOT NULL
        ORDER BY is_manual, scheduled_for
        LIMIT ?",
    elect: "
        INSERT INTO {job_runs} (run_id, job_id, scheduled_for, state, attempts, owner, started_at,
            next_attempt_at)
        VALUES (?, ?, ?, 'running', 1, ?, {now}, {after})
        {unless_there run_id}",
    take: "
        UPDATE {job_runs}
        SET state = 'running', attempts = attempts + 1, owner = ?, failures = failures + ?,
            next_attempt_at = {after}, started_at = {now}
        WHERE run_id = ? AND attempts = ? AND next_attempt_at <= {now}",
    give_up: "
        UPDATE {job_runs}
        SET state = 'failed', owner = NULL, failures = failures + 1, last_error = ?, next_attempt_at = NULL,
            finished_at = {now}
        WHERE run_id = ? AND attempts = ? AND next_attempt_at <= {now}",
    request: "
        INSERT INTO {job_runs} (run_id, job_id, scheduled_for, is_manual, next_attempt_at)
        SELECT ?, id, {now}, true, {now}
        FROM {jobs}
        WHERE id = ? AND (
            SELECT count(*)
            FROM (
                SELECT 1
                FROM {job_runs}
                WHERE job_id = ? AND next_attempt_at IS NOT NULL
                LIMIT ?
            ) open) < ?",
    renew: "
        UPDATE {job_runs}
        SET next_attempt_at = {after}
        WHERE run_id = ? AND owner = ? AND attempts = ?",
    finish: "
        UPDATE {job_runs}
        SET state = ?, owner = NULL, failures = failures + ?, next_attempt_at = {after},
            finished_at = CASE WHEN ? IN ('done', 'failed') THEN {now} END, http_code = ?, last_error = ?
        WHERE run_id = ? AND owner = ? AND attempts = ?",
    find: "
        SELECT {job_run}
        FROM {job_runs}
        WHERE run_id = ?",
    runs: "
        SELECT {job_run}
        FROM {job_runs}
        WHERE job_id = ?
        ORDER BY scheduled_for DESC, run_id DESC
        LIMIT ?",
    purge: "
        DELETE FROM {job_runs}
        WHERE run_id IN (
            SELECT run_id
            FROM {job_runs}
            WHERE finished_at <= (SELECT {after -?})
            ORDER BY finished_at
            LIMIT ?)",
};
