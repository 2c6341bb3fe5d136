//! Runs of jobs. An array, because a join could be planned over the whole table.
use super::super::portable;
use crate::texts::Jobs;

pub(super) const JOBS: Jobs = Jobs {
    purge: "
        DELETE FROM {job_runs}
        WHERE run_id = ANY(ARRAY(
            SELECT run_id
            FROM {job_runs}
            WHERE finished_at <= (SELECT {after -?})
            ORDER BY finished_at
            LIMIT ?
            FOR UPDATE SKIP LOCKED))",
    ..portable::JOBS
};
