//! Scheduled jobs and their runs.
use super::area;

area! {
    /// Jobs and their runs, by primary key where nothing else is named.
    Jobs {
        /// Writes a job. Its runs count from now on if it is new, or if its schedule has changed. Binds: id,
        /// schedule, time zone.
        register,
        /// The jobs of a process: up to when they are decided, and the microseconds until an open run is
        /// due, by `job_runs_open`. Bind: JSON array of ids.
        look,
        /// Jobs that were registered, by id. Bind: limit.
        list,
        /// One job. Bind: id.
        find_job,
        /// Locks a job. Bind: id.
        lock,
        /// Says that scheduled runs up to a time are decided. Binds: time, id, the same time.
        decide,
        /// The open runs of a job, scheduled ones first, by `job_runs_open`. Binds: id, limit.
        open,
        /// Inserts a run that its process begins at once. No row is changed if the run is there. Binds: run
        /// id, job, scheduled for, owner, lease.
        elect,
        /// Takes an open run whose time has come, and whose attempts are as they were read. Binds: owner,
        /// failures to add, lease, run id, attempts.
        take,
        /// Ends an open run whose time has come, and whose attempts are as they were read. Binds: error, run
        /// id, attempts.
        give_up,
        /// Inserts a manual run, unless so many of its job are open, by `job_runs_open`. Binds: run id, job,
        /// job, limit, limit.
        request,
        /// Renews the lease of a run. Binds: lease, run id, owner, attempts.
        renew,
        /// Writes the result of an attempt. Binds: state, failures to add, microseconds until the next
        /// attempt or NULL, state, code, error, run id, owner, attempts.
        finish,
        /// One run. Bind: run id.
        find,
        /// The runs of a job, newest first, by `job_runs_job`. Binds: job, limit.
        runs,
        /// Deletes runs that ended, by `job_runs_finished_at`. Binds: microseconds since their end, limit.
        purge,
    }
}
