//! Reading the log, keeping it, and replaying it.
use super::area;

area! {
    /// The cursors of readers, by primary key (destination).
    Cursors {
        /// Makes a cursor. Binds: destination, tick, tick, partitions.
        create,
        /// Its number of partitions, and whether it is detached. Bind: destination.
        settings,
        /// Takes the lease, unless another process wishes for it. Binds: owner, lease, lease, address or
        /// NULL, destination, owner, owner.
        take,
        /// The cursor and its epoch, and the newest ticks up to its p and its w: these, unless they are gone.
        /// Binds: destination, owner.
        read,
        /// Advances the cursor and renews the lease. Binds: p, w, position, the two ticks being read, the
        /// number of destinations of the process, lease, destination, epoch, owner, old p, old w, old
        /// position, server run.
        advance,
        /// Ends the lease. Binds: destination, epoch, owner.
        release,
        /// What a process that stands by sees of the lease, of its owner's share, and of the wish for it.
        /// Binds: owner, destination.
        standby,
        /// Wishes for the lease, unless another process does. Binds: owner, number of destinations of the
        /// process, destination, owner.
        wish,
        /// Locks the cursor against a takeover until the transaction ends. Binds: destination, epoch, owner,
        /// server run.
        lock,
        /// Pauses or resumes a destination. Binds: reason or NULL, destination.
        set_pause,
        /// What others ask of the owner: why the destination is paused, and how many destinations the process
        /// owns that wishes for the lease. Bind: destination.
        asked,
        /// How far a destination is settled, and whether it is detached. Bind: destination.
        position,
        /// Every destination, without replays.
        list,
        /// The names of destinations that are not detached, without replays.
        live_names,
        /// The secret of a destination, by primary key. Bind: destination.
        secret,
        /// Makes the secret of a destination that has none. Binds: destination, secret.
        create_secret,
    }
}

area! {
    /// The outbox as a log.
    Log {
        /// A row if there is any message.
        any,
        /// The newest tick, after making one if it is the reader's own and something lies beyond it. The
        /// commit is flushed, and with it every message of a window up to the tick. Bind: the reader's newest
        /// tick.
        newest_tick,
        /// The positions between which the newcomers of a window lie, and the snapshots of its ticks. Without
        /// newcomers also: whether no late committer is in it, and whether the server run is the same. Binds:
        /// p, w, server run.
        window_bounds,
        /// The next messages of a window, perhaps out of order. Every row begins with whether the window can
        /// be read here; a row without a position says only that. Binds: see `bind_page`.
        page,
        /// Deletes ticks that nobody needs: one a second stays of those that had a next one 10 s ago, one a
        /// minute of those older than an hour, every one that a cursor or a running replay names, and for an
        /// hour all that a reader may name next.
        thin_ticks,
        /// Makes a tick behind everything that is committed. No row: another process made it at the same
        /// time, perhaps before the last commit.
        tick_now,
        /// The newest tick that lies before everything committed after a time. Bind: time.
        tick_at,
        /// The newest tick, no newer than p, that lies before the messages of a replay. NULL: a tick of the
        /// cursor is gone. Binds: the value of `{replay_start}`, p, w.
        tick_before,
        /// Keeps ticks until the transaction ends.
        lock_ticks,
        /// How many messages a reader has not settled, up to a limit, and the age of the oldest in
        /// microseconds. Binds: destination, limit.
        backlog,
        /// Messages of one event id, oldest first, by `outbox_id`. Binds: event id, limit.
        messages_of_event,
        /// The newest messages of a key. Binds: key, time of the oldest, limit.
        messages_of_key,
        /// The position and the time of the first of the messages before a position, looking so far back. By
        /// primary key. Binds: position, limit.
        page_end,
        /// The newest messages of a key in a range of positions, by primary key. Binds: key, first position,
        /// position to end before, limit.
        messages_of_key_between,
        /// A row if a cursor has settled the message at a position. Binds: p, w, position, position of the
        /// message.
        is_settled,
    }
}

area! {
    /// Deleting the log, and readers that hold it back.
    Retention {
        /// Where a DELETE keeps everybody from writing: positions of messages that may be deleted. Binds:
        /// age, limit.
        purgeable,
        /// Deletes messages that every live reader has settled, that are older than an age and not parked.
        /// Binds: age, limit; or a JSON array of positions that were found before.
        purge,
        /// Deletes ticks that lie before deleted messages only. Bind: age.
        purge_ticks,
        /// The reader that is furthest behind, if it is behind messages of an age. Bind: age.
        slowest_reader,
        /// Destinations that are behind messages of an age, without replays. Bind: age.
        lagging,
        /// Detaches a destination that is behind messages of an age. A lease that nobody owns and that never
        /// ends keeps readers of older versions away too. Binds: destination, age.
        detach,
        /// Deletes a cursor that nobody owns, by primary key. Bind: destination.
        retire_cursor,
        /// Deletes the parked rows of a destination, by primary key. Bind: destination.
        retire_parked,
    }
}

area! {
    /// Replays, by primary key where nothing else is named.
    Replays {
        /// Makes one. Binds: its columns.
        create,
        /// Makes its cursor. Binds: destination, p, w.
        create_cursor,
        /// One replay. Bind: id.
        find,
        /// The newest. Bind: limit.
        list,
        /// Destinations with running replays, by `replays_running`.
        running_destinations,
        /// The oldest running replay of a destination that nobody paused, by `replays_running`. Bind:
        /// destination.
        next,
        /// Ends one. Binds: state, id.
        finish,
        /// Takes its cursor from its owner. Bind: destination.
        detach_cursor,
        /// Cancels the running ones. Bind: destination or NULL for all.
        cancel_all,
        /// Takes the cursors of ended replays from their owners. Bind: destination or NULL for all.
        detach_ended,
        /// A row if one has ended long ago. Binds: id, age (negative).
        ended_before,
        /// Deletes the cursors of ended replays.
        delete_cursors,
    }
}

area! {
    /// Making ticks, on a database whose positions do not follow the order of commits. A hole is a range of
    /// positions without a committed row; it is open until a tick finds a row in it.
    Holes {
        /// The newest tick, and the newest position that it covers.
        last_tick,
        /// Open holes, by `holes_closed_by`.
        open,
        /// Positions of open holes that have a row, by the primary key of the log. Bind: limit.
        filled,
        /// Positions above a tick that have a gap before them, and the last one. By the primary key of the
        /// log. Binds: newest position of the tick, twice; limit.
        newcomers,
        /// Makes a tick. Binds: id, newest position, id of the tick before.
        insert_tick,
        /// Commits a change, when it runs alone. What was committed before it is on disk then.
        flush,
        /// Closes holes. Bind: tick. A list of ids follows.
        close,
        /// Opens holes. Rows follow.
        insert,
        /// Open holes that are to be probed, by `holes_closed_by`.
        due,
        /// Delays the next probe of a hole, by primary key. Bind: id.
        postpone,
        /// Whether a row is there. A list of positions follows.
        occupied,
        /// Writes tombstones. Rows follow.
        bury,
        /// Deletes closed holes that no tick needs, by `holes_closed_by`.
        forget,
        /// The positions of a window with a row, by kind: late committers and newcomers in order, each up to
        /// a limit, the holes of its second tick, and the first wide hole of late committers, by
        /// `holes_closed_by`. Binds: p, twice; w, after, limit; after, floor, p, ceiling, w, limit; w, twice;
        /// after; p, twice; w, after.
        positions,
        /// The positions of late committers in a wide hole, in order, by the primary key of the log. Binds:
        /// after, last, limit.
        late_of_wide_hole,
        /// Keeps cursors from beginning in the past until the transaction ends.
        lock_first_tick,
        /// The newest tick of an age, by `ticks_taken_at`, the oldest that a reader has settled, and the
        /// newest position. Bind: age.
        purgeable_ticks,
        /// The newest tick up to one, by primary key. Bind: tick.
        tick_up_to,
        /// The holes that a tick had, beyond a position, by `holes_closed_by`. Binds: tick, twice; position.
        holes_of_tick,
        /// Positions in a range, by primary key, without parked ones and young tombstones. Binds: position to
        /// begin after, last position, limit.
        purgeable,
        /// Deletes messages by primary key. A list of positions follows.
        purge,
        /// Deletes the first ticks before one, by primary key. Binds: tick, limit.
        purge_ticks,
    }
}
