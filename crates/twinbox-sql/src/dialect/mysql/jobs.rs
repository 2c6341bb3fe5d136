//! Runs of jobs.
use super::super::portable;
use crate::texts::Jobs;

pub(super) const JOBS: Jobs = Jobs {
    // A job that is as it was asks for no new time. The assignments run in order.
    register: "
        INSERT INTO {jobs} (id, schedule, time_zone, decided_until)
        VALUES (?, ?, ?, {now})
        ON DUPLICATE KEY UPDATE
            decided_until = IF(schedule <> VALUES(schedule) OR time_zone <> VALUES(time_zone),
                VALUES(decided_until), decided_until),
            schedule = VALUES(schedule), time_zone = VALUES(time_zone)",
    purge: "
        DELETE FROM {job_runs}
        WHERE {bounded_wait} AND finished_at <= {after -?}
        ORDER BY finished_at
        LIMIT ?",
    ..portable::JOBS
};
