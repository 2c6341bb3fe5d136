//! Side effects and their vendors.
use super::area;

area! {
    /// Side effects, by primary key where nothing else is named.
    Effects {
        /// Plans an effect, by `side_effects_source_id_kind_key`: no row is changed if the source has one of
        /// this kind. Binds: id, source, kind, vendor, key, method, target, content type, headers, request,
        /// headers of the codec, correlation id, trace, position of the effect that it compensates.
        plan,
        /// One effect by what it is planned for. Binds: source, kind.
        find,
        /// One effect by its position.
        get,
        /// One effect by its id, by `side_effects_id_key`.
        get_by_id,
        /// One effect by its position. It stays locked until the transaction ends.
        lock,
        /// An effect that compensates another, by `side_effects_source_id_kind_key`. Binds: id and position
        /// of the compensated one.
        compensation,
        /// For each vendor: the microseconds until its next effect is due, by `side_effects_due`, and until
        /// it may be called. Bind: JSON array of vendors.
        look,
        /// Locks due effects of a vendor that may be called, the longest due first, by `side_effects_due`.
        /// The last one may exceed the bytes. Binds: vendor, the same vendor, limit, bytes.
        claim,
        /// The locked effects whose key has an earlier open one, by `side_effects_key`. A statement of
        /// its own after the lock: an earlier effect that it sees open ends later, and wakes the next one. An
        /// effect that compensates an open one of its key waits neither for that one nor for those behind it.
        /// Bind: JSON array of positions.
        blocked,
        /// Gives claimed effects to a process that sends them or looks them up. Binds: owner, JSON rows.
        take,
        /// Names an effect that was planned in SQL. Binds: id, position.
        name,
        /// Writes the results of effects: of those without an attempt in their row, which this transaction
        /// has locked, and of those that the process still owns. Binds: JSON rows, owner.
        settle,
        /// Wakes the first open effect of each key to which an effect belongs, by `side_effects_key`. Bind:
        /// JSON array of positions.
        wake,
        /// Marks the effects that confirmed effects compensate. Bind: JSON array of positions.
        compensate,
        /// Closes a vendor for a time, unless it is closed for longer. Binds: vendor, microseconds.
        close_vendor,
        /// How many effects of a state there are, up to a limit, by `side_effects_problem`. Binds: state,
        /// limit.
        count_problems,
        /// Deletes effects that ended, by `side_effects_ended_at`. Binds: microseconds since their end, the
        /// same for failed ones, which is no less, limit.
        purge,
    }
}

area! {
    /// Side effects and vendors for operators, by primary key where nothing else is named.
    EffectActs {
        /// Effects before a position, the newest first, without their requests. Binds: position, limit.
        page,
        /// The effects of a source, the newest first, by `side_effects_source_id_kind_key`. Binds: source,
        /// limit.
        of_source,
        /// The unknown effects before a position, by `side_effects_problem`. Binds: position, limit.
        unknown_page,
        /// The failed effects before a position, by `side_effects_problem`. Binds: position, limit.
        failed_page,
        /// How many effects failed within a time, up to a limit, by `side_effects_ended_at`. Binds:
        /// microseconds, limit.
        count_failed_since,
        /// Sends an effect again with another key: its vendor did nothing. Binds: note, position.
        renew,
        /// Confirms an effect: its vendor acted. Binds: note, position.
        confirm,
        /// The vendors of open effects, by `side_effects_due`, those with a row, and those of the newest
        /// effects. Binds: number of the newest effects, limit.
        vendors,
        /// The microseconds until a vendor's first open effect is due, and how many are open, up to a limit,
        /// by `side_effects_due`. Binds: vendor, twice; limit.
        waiting,
        /// Pauses a vendor. Binds: vendor, reason.
        pause,
        /// Resumes a vendor that is paused, or that asked for no call. Bind: vendor.
        resume,
    }
}
