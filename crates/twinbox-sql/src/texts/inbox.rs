//! Claims, attempts, dead letters and partitions of consumers.
use super::area;

area! {
    /// Claims and attempts, by primary key (consumer, message id) where nothing else is named.
    Inbox {
        /// Claims messages. Where the database waits for locks, the wait is bounded.
        claim,
        /// Claims one message, where that is cheaper.
        claim_one,
        /// The ids among those that follow that are claimed, where claims return none. Bind: consumer.
        known_claims,
        /// The time of the newest message whose claim was purged, where claims do not return it. Bind:
        /// consumer.
        purge_mark,
        /// Begins a transaction and claims one message, where one round trip can do both.
        begin_and_claim,
        /// Deletes the claim of a handler that has committed by itself, where that is possible. Binds:
        /// consumer, message id.
        delete_open_claim,
        /// Makes such a claim final, likewise. Binds: consumer, message id.
        bury_open_claim,
        /// Ends the claims of the ids that follow, where a handler can commit them before. Bind: consumer.
        end_claims,
        /// Allows the commit of a handler's transaction, unless the handler ended it. Bind: the guard of the
        /// claim.
        allow_commit,
        /// The guard of a transaction, whose statements and pauses are bounded. Absent where
        /// the database does not know it. Bind: milliseconds.
        guard,
        /// Allows the commit of a handler's transaction and commits, in one round trip, with what sets the
        /// session up behind it. `GUARD` stands for the guard of the claim.
        commit_at_once,
        /// State and payload hash of a claim. Binds: consumer, message id.
        find_claim,
        /// Sets the state of a claim. Binds: state, consumer, message id.
        set_state,
        /// Deletes the claim of a message that was given up. Binds: consumer, message id.
        delete_final_claim,
        /// Failures on record, and the role of the transaction where one can be set for it. Binds: consumer,
        /// message id.
        failures,
        /// Sets the role of the transaction, and returns that from before. Absent where none can be set for
        /// it. Bind: role.
        set_role,
        /// Counts a failure. Binds: consumer, message id, error.
        record_failure,
        /// Deletes failures and starts. Binds: consumer, message id.
        delete_attempts,
        /// Records a first start, unless the message is claimed. Binds: consumer, message id, consumer,
        /// message id.
        record_start,
        /// Counts a start that was made alone. Binds: consumer, message id.
        record_lone_start,
        /// Starts without an end. Binds: consumer, message id.
        starts,
        /// Deletes the record of a start without failures. Binds: consumer, message id.
        delete_start,
        /// Ends all starts. Binds: consumer, message id.
        end_starts,
        /// Moves the purge mark forward. Binds: consumer, time.
        advance_purge_mark,
        /// Purge marks at or after a time. Bind: time.
        purge_marks_since,
        /// The time of the newest of the oldest claims, and of the newest of their messages, by
        /// `inbox_claimed_at`. Binds: consumer, age (negative), limit.
        purgeable_claims,
        /// Deletes claims, oldest first, by `inbox_claimed_at`. Binds: consumer, newest claim, newest
        /// message, limit.
        purge_claims,
        /// Where a DELETE waits for the claims that it reads: messages whose failures may be deleted. Binds:
        /// consumer, age (negative), limit.
        purgeable_attempts,
        /// Deletes failures of messages that are claimed (a copy has failed), and old ones. Binds: consumer,
        /// age (negative), limit, age; or consumer, age, and the ids of messages that were found before.
        purge_attempts,
        /// The time of the oldest message that is parked for a consumer. Binds: consumer, destination.
        oldest_parked,
        /// Copies a claim that a replay takes back, once for each replay, by primary key (consumer, message
        /// id, replay). Binds: consumer, message id, replay.
        supersede,
        /// Deletes a claim that is older than a replay. Binds: consumer, message id, time of the replay.
        delete_superseded,
        /// Deletes old copies. Binds: consumer, age (negative), limit.
        purge_superseded,
        /// What each consumer did with a message. Binds: message id three times.
        claims_of_message,
        /// The source and event id of a claimed message. Bind: message id.
        event_of_message,
    }
}

area! {
    /// Consumers, by primary key.
    Consumers {
        /// Records that a process runs the consumer, and reads why it is paused. Binds: consumer, address or
        /// NULL.
        heartbeat,
        /// Deletes the record. Bind: consumer.
        forget,
        /// Why it is paused. Bind: consumer.
        pause_reason,
        /// Pauses or resumes it. Binds: reason or NULL, consumer.
        set_pause,
        /// Every consumer, with how many of its partitions nobody owns, and since when.
        list,
        /// The names of all. No binds.
        names,
        /// When a consumer ran last, why it is paused, where its messages are, and what waits for it in this
        /// database: parked deliveries, parked messages of its cursor, dead letters, each counted up to a
        /// limit, and the time of its newest claim. By `parked_deliveries_key`, `parked_messages_waiting`,
        /// `dead_letters_consumer`, `inbox_claimed_at` and primary keys. Binds: consumer, consumer, consumer,
        /// limit, consumer, limit, consumer, limit, consumer.
        backlog,
    }
}

area! {
    /// Dead letters of consumers, by primary key where nothing else is named.
    DeadLetters {
        /// Writes one. Binds: consumer, reason, error, fingerprint, attempts, the columns of
        /// `{stored_message}`.
        insert,
        /// The newest of a consumer. Binds: consumer, limit.
        newest,
        /// The bytes of the payloads and headers of a consumer's, by `dead_letters_consumer`. Bind: consumer.
        bytes,
        /// One message. Bind: id.
        message,
        /// Takes due redrives under a lease, by `dead_letters_redrive`. Binds: lease, consumer, whether order
        /// matters, limit.
        take_redriven,
        /// Due redrives, which `take_redriven` then takes by their ids, where an UPDATE returns no rows. By
        /// `dead_letters_redrive`. Binds: consumer, whether order matters, limit.
        due_redrives,
        /// A row if a redrive is due, by `dead_letters_redrive`. Bind: consumer.
        has_redriven,
        /// Redrives one. Binds: delay, attempts, id.
        redrive,
        /// Records a failed redrive. Binds: error, fingerprint, delay, 0 to give up and 1 to go on, id,
        /// message id.
        record_failure,
        /// Deletes one that is redriven, in the transaction that claims its message. A server that forgot
        /// commits may have given the id to another message. Binds: id, attempts left, message id.
        claim,
        /// Locks it instead, where a handler could commit its end alone. Binds: those of `claim`.
        hold,
        /// Gives an attempt back. Binds: delay, id, attempts left, message id.
        give_back,
        /// Deletes one. Bind: id.
        delete,
        /// Adds one that is due to be redriven, unless the consumer has claimed the message or has a dead
        /// letter of it. By `dead_letters_event`, and the primary key of the inbox. Binds: consumer,
        /// fingerprint, attempts, the columns of `{stored_message}`, event id, consumer, message id,
        /// consumer, message id.
        import,
        /// One, without its message. Bind: id.
        find,
        /// Those of an event id, by `dead_letters_event`. Binds: event id, limit.
        of_event,
        /// The first consumer behind a name that has any, by `dead_letters_group`. Bind: consumer.
        next_consumer,
        /// The first group of a consumer behind a fingerprint, by `dead_letters_group`. Binds: consumer,
        /// fingerprint.
        next_group,
        /// How many a group has, up to a limit, how many of them were given up behind a time, how many are
        /// redriven, and the last and the first time of all, by `dead_letters_group`. Binds: time, consumer,
        /// fingerprint, consumer, fingerprint, limit.
        group_counts,
        /// How many a consumer has before a time, and how many of them are redriven, up to a limit, by
        /// `dead_letters_group`. Binds: consumer, time, limit.
        count_of_consumer,
        /// The same of a group. Binds: consumer, fingerprint, time, limit.
        count_of_group,
        /// Those of a group before a time and id, the newest first, by `dead_letters_group`. Binds: consumer,
        /// fingerprint, time, the same time, id, limit.
        group_before,
        /// The same behind a time and id, the oldest first, up to a time. Binds: consumer, fingerprint, time,
        /// the same time, id, last time, limit.
        group_after,
        /// Those of a consumer before a time and id, the newest first, by `dead_letters_consumer`. Binds:
        /// consumer, time, the same time, id, limit.
        consumer_before,
        /// The same behind a time and id, the oldest first, up to a time. Binds: consumer, time, the same
        /// time, id, last time, limit.
        consumer_after,
    }
}

area! {
    /// The partitions of ordered consumers, by primary key.
    Partitions {
        /// Renews the lease of a process. Binds: consumer, member, lease, lease.
        renew_member,
        /// Deletes processes whose lease ended. Bind: consumer.
        delete_expired_members,
        /// Deletes a process. Binds: consumer, member.
        delete_member,
        /// The processes of a consumer. Bind: consumer.
        members,
        /// Makes the row of a partition. Binds: consumer, partition, types.
        create,
        /// The types that the rows are for, if they are others. Binds: consumer, types.
        other_types,
        /// Renews the leases of a process. Binds: lease, consumer, owner.
        renew,
        /// Partitions that nobody owns. Bind: consumer.
        free,
        /// Every partition with its owner and its checkpoint. Bind: consumer.
        list,
        /// Takes a partition. Binds: owner, lease, lease, consumer, partition.
        take,
        /// Reads the row that `take` returns, where an UPDATE returns no rows. Binds: consumer, partition.
        read,
        /// Reads the rows that `renew` returns, where an UPDATE returns no rows. Binds: consumer, owner.
        owned,
        /// Records how far a partition is settled. Binds: log, sequence, message, consumer, partition, epoch,
        /// server run.
        settle,
        /// Ends the lease. Binds: consumer, partition, epoch, server run.
        release,
        /// Locks the partition against a takeover until the transaction ends, where `fence` does not. Binds:
        /// consumer, partition.
        share_fence,
        /// Whether the partition is still its owner's; it stays so until the transaction ends. Binds:
        /// consumer, partition, epoch, server run, milliseconds that the transaction may be idle.
        fence,
        /// Waits until no transaction of an earlier owner is open. Binds: consumer, partition.
        wait_for_transactions,
    }
}
