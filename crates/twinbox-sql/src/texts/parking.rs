//! Parked messages and deliveries.
use super::area;

area! {
    /// Parked messages of destinations. The rows name messages of the log.
    ParkedMessages {
        /// Parks messages, or parks them again, by primary key. A decision of an operator stays: a row that
        /// is not waiting any more is left, and one that was deleted is not made again. Binds: destination,
        /// rows as JSON, destination.
        write,
        /// Which positions of a range are parked, by primary key. Binds: destination, first, last.
        positions_between,
        /// Parked messages, oldest first, by primary key. Binds: destination, limit.
        list,
        /// How many rows of a destination wait, are given up, and block it, each up to a limit, by
        /// `parked_messages_waiting`, `parked_messages_group` and `parked_messages_blocking`. Binds:
        /// destination and limit, three times.
        counts,
        /// One row, by primary key. Binds: destination, position.
        find,
        /// Gives a message up and releases its key, by `parked_messages_key` and the primary key of the log.
        /// Binds: destination, event id.
        skip,
        /// Releases a key that dead letters hold, by `parked_messages_key`. Binds: destination, key.
        release_key,
        /// The message of a dead letter, by primary key. Binds: position, destination.
        dead_message,
        /// Makes a dead letter wait for another attempt, by primary key. Binds: delay, destination, position.
        redrive,
        /// Deletes a dead letter, by primary key. Binds: destination, position.
        discard,
        /// The rows of a key that later messages wait behind, by `parked_messages_key`. Binds: destination,
        /// key, limit.
        of_key,
        /// One dead letter, by primary key. Binds: destination, position.
        find_dead,
        /// The dead letters of an event id, by the index on the id of the log and
        /// `parked_messages_position`. Binds: event id, limit.
        dead_of_event,
        /// The next reader with parked rows, by primary key. Bind: reader to begin after.
        next_owner,
        /// The first reader behind a name that has dead letters, by `parked_messages_group`. Bind: name.
        next_destination,
        /// The first group of a destination behind a fingerprint, by `parked_messages_group`. Binds:
        /// destination, fingerprint.
        next_group,
        /// How many a group has, up to a limit, how many of them were given up behind a time, and the last
        /// and the first time of all, by `parked_messages_group_time`. Binds: time, destination, fingerprint,
        /// destination, fingerprint, limit.
        group_counts,
        /// How many dead letters a destination has before a time, up to a limit, by
        /// `parked_messages_group_time`. None is redriven: those wait. Binds: destination, time, limit.
        count_of_destination,
        /// The same of a group. Binds: destination, fingerprint, time, limit.
        count_of_group,
        /// Dead letters of a group before a position, the newest first, by `parked_messages_group`. Binds:
        /// destination, fingerprint, position, limit.
        group_before,
        /// The same behind a position, the oldest first, up to a time. Binds: destination, fingerprint,
        /// position, last time, limit.
        group_after,
        /// Dead letters of a destination before a position, the newest first, by primary key. Binds:
        /// destination, position, limit.
        destination_before,
        /// The same behind a position, the oldest first, up to a time. Binds: destination, position, last
        /// time, limit.
        destination_after,
    }
}

area! {
    /// The queues of parked messages, the same for both tables. "Owner" stands for the binds of the owner:
    /// the destination, or consumer and partition.
    ParkedQueue {
        /// For each key with rows that later messages wait behind: its first row, the microseconds until its
        /// next attempt if it waits for one, and its attempts. By the index on the key, and the primary key:
        /// subqueries, because a join could be planned over the rows of all owners. Binds: owner three times.
        heads,
        /// Due rows without a key, by the index on rows without a key. Binds: owner, limit.
        due_without_key,
        /// The microseconds until the first row without a key is due, by the same index. Binds: owner.
        next_without_key,
        /// Rows of a key in order, from a row on: whether each is due, and its attempts. By the index on the
        /// key. Binds: owner, key, row, limit.
        run_of_key,
        /// The bytes of the messages of rows, by primary key. Binds: owner, rows as a JSON array.
        sizes,
        /// The messages of rows, by primary key. Binds: owner where the rows hold the messages, rows as a
        /// JSON array.
        messages,
        /// Deletes rows, by primary key. Binds: owner, rows as a JSON array.
        delete,
        /// How many rows wait, up to a limit; whether messages wait behind any row; whether a row blocks the
        /// owner; whether the server run is the owner's. By the indexes on waiting rows, keys and blocking
        /// rows. Binds: owner, limit, owner, owner, server run.
        counts,
    }
}

area! {
    /// Parked deliveries of consumers. The rows hold the messages.
    Deliveries {
        /// Parks deliveries. One that is parked already stays as it is.
        insert,
        /// Delays the next attempt, by primary key. Binds: delay, consumer, partition, row.
        postpone,
        /// The bytes of the payloads of a partition, by `parked_deliveries_key`. Binds: consumer, partition.
        bytes,
        /// How many rows a consumer has, by `parked_deliveries_key`. Bind: consumer.
        count,
        /// Rows of a consumer with their failures, by `parked_deliveries_key`. Binds: consumer, limit.
        list,
        /// The same of a key. Binds: consumer, key, limit.
        of_key,
        /// Makes rows due now, by `parked_deliveries_key`. Binds: consumer, key or NULL for all.
        retry_now,
    }
}
