-- One row for each message that a consumer has handled or given up.
CREATE TABLE IF NOT EXISTS {inbox} (
    consumer VARBINARY(255) NOT NULL,
    message_id BINARY(16) NOT NULL,
    -- Other systems have longer ones than a producer may write.
    source BLOB NOT NULL,
    event_id BLOB NOT NULL,
    payload_hash VARBINARY(32) NOT NULL,
    state VARBINARY(64) NOT NULL CHECK (state IN ('open', 'processed', 'rejected', 'dead')),
    -- No earlier than `time`, whatever the clock of the producer shows.
    claimed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(claimed_at) * DAYOFMONTH(claimed_at) > 0
            AND DAYOFMONTH(claimed_at) <= COALESCE(DAYOFMONTH(LAST_DAY(claimed_at)), 0)),
    -- The time of the message.
    time DATETIME(6) CHECK (MONTH(time) * DAYOFMONTH(time) > 0
        AND DAYOFMONTH(time) <= COALESCE(DAYOFMONTH(LAST_DAY(time)), 0)),
    PRIMARY KEY (consumer, message_id),
    -- For the oldest claims of a consumer.
    INDEX inbox_claimed_at (consumer, claimed_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Failures of messages that may be handled yet.
CREATE TABLE IF NOT EXISTS {attempts} (
    consumer VARBINARY(255) NOT NULL,
    message_id BINARY(16) NOT NULL,
    failures BIGINT NOT NULL,
    last_error TEXT NOT NULL,
    first_failed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(first_failed_at) * DAYOFMONTH(first_failed_at) > 0
            AND DAYOFMONTH(first_failed_at) <= COALESCE(DAYOFMONTH(LAST_DAY(first_failed_at)), 0)),
    last_failed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(last_failed_at) * DAYOFMONTH(last_failed_at) > 0
            AND DAYOFMONTH(last_failed_at) <= COALESCE(DAYOFMONTH(LAST_DAY(last_failed_at)), 0)),
    -- Starts of the handler without a known end. The first may have run beside other messages, each later one
    -- ran alone.
    starts BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, message_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that a consumer gave up, in full.
CREATE TABLE IF NOT EXISTS {dead_letters} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer VARBINARY(255) NOT NULL,
    message_id BINARY(16) NOT NULL,
    reason VARBINARY(64) NOT NULL,
    error TEXT NOT NULL,
    -- Groups dead letters of one cause: a hash of their type, their reason and their error without numbers.
    fingerprint VARBINARY(64) NOT NULL,
    attempts BIGINT NOT NULL,
    given_up_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(given_up_at) * DAYOFMONTH(given_up_at) > 0
            AND DAYOFMONTH(given_up_at) <= COALESCE(DAYOFMONTH(LAST_DAY(given_up_at)), 0)),
    -- Other systems have longer texts than a producer may write.
    event_id BLOB NOT NULL,
    source BLOB NOT NULL,
    type BLOB NOT NULL,
    version BIGINT NOT NULL,
    key BLOB,
    subject BLOB,
    time DATETIME(6) NOT NULL CHECK (MONTH(time) * DAYOFMONTH(time) > 0
        AND DAYOFMONTH(time) <= COALESCE(DAYOFMONTH(LAST_DAY(time)), 0)),
    sequence BIGINT,
    correlation_id BLOB,
    causation_id BLOB,
    traceparent BLOB,
    content_type BLOB NOT NULL,
    headers MEDIUMTEXT,
    payload MEDIUMBLOB NOT NULL,
    -- When it is redriven, and how often at most. An attempt is counted before it is made.
    redrive_at DATETIME(6) CHECK (MONTH(redrive_at) * DAYOFMONTH(redrive_at) > 0
        AND DAYOFMONTH(redrive_at) <= COALESCE(DAYOFMONTH(LAST_DAY(redrive_at)), 0)),
    redrive_attempts_left BIGINT NOT NULL DEFAULT 0,
    INDEX dead_letters_consumer (consumer, given_up_at, id),
    -- For the groups of a consumer. It holds all that their counts read.
    INDEX dead_letters_group (consumer, fingerprint, given_up_at, id, redrive_attempts_left),
    -- For the dead letters of a message.
    INDEX dead_letters_event (event_id(255)),
    -- For rows with attempts left. The others have no time, or one that is past: a statement skips them.
    INDEX dead_letters_redrive (consumer, redrive_at, redrive_attempts_left)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How far a consumer with `order = "key"` has settled each partition of a broker's log, and which process
-- owns it.
CREATE TABLE IF NOT EXISTS {partition_leases} (
    consumer VARBINARY(255) NOT NULL,
    partition BIGINT NOT NULL,
    -- The types that the consumer reads. The sequence means nothing for other types.
    types MEDIUMBLOB NOT NULL,
    -- The log of the sequence. Another log of the same name is read from its beginning.
    log VARBINARY(255) NOT NULL DEFAULT '',
    sequence BIGINT NOT NULL DEFAULT 0,
    -- The message at this sequence. If the log has another one there, it has lost its end.
    last_message VARBINARY(512) NOT NULL DEFAULT '',
    epoch BIGINT NOT NULL DEFAULT 0,
    owner BINARY(16),
    lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00'
        CHECK (MONTH(lease_until) * DAYOFMONTH(lease_until) > 0
            AND DAYOFMONTH(lease_until) <= COALESCE(DAYOFMONTH(LAST_DAY(lease_until)), 0)),
    -- The duration of the lease, in microseconds.
    lease BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, partition)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The row of a partition is shared by the transactions of its owner, and locked alone by a takeover. It is a
-- table of its own, because the owner writes its lease and its checkpoint meanwhile.
CREATE TABLE IF NOT EXISTS {partition_fences} (
    consumer VARBINARY(255) NOT NULL,
    partition BIGINT NOT NULL,
    PRIMARY KEY (consumer, partition)
) ENGINE = InnoDB;

-- The processes that share the partitions of a consumer.
CREATE TABLE IF NOT EXISTS {partition_members} (
    consumer VARBINARY(255) NOT NULL,
    member BINARY(16) NOT NULL,
    lease_until DATETIME(6) NOT NULL CHECK (MONTH(lease_until) * DAYOFMONTH(lease_until) > 0
        AND DAYOFMONTH(lease_until) <= COALESCE(DAYOFMONTH(LAST_DAY(lease_until)), 0)),
    -- The duration of the lease, in microseconds.
    lease BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, member)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Deliveries that a consumer parked so that other keys continue. They are kept in full, because the broker
-- forgets them.
CREATE TABLE IF NOT EXISTS {parked_deliveries} (
    -- In the order of delivery, within a key.
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer VARBINARY(255) NOT NULL,
    partition BIGINT NOT NULL,
    next_attempt_at DATETIME(6) NOT NULL CHECK (MONTH(next_attempt_at) * DAYOFMONTH(next_attempt_at) > 0
        AND DAYOFMONTH(next_attempt_at) <= COALESCE(DAYOFMONTH(LAST_DAY(next_attempt_at)), 0)),
    parked_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(parked_at) * DAYOFMONTH(parked_at) > 0
            AND DAYOFMONTH(parked_at) <= COALESCE(DAYOFMONTH(LAST_DAY(parked_at)), 0)),
    message_id BINARY(16) NOT NULL,
    sequence BIGINT,
    -- Other systems have longer texts than a producer may write.
    event_id BLOB NOT NULL,
    source BLOB NOT NULL,
    type BLOB NOT NULL,
    version BIGINT NOT NULL,
    key BLOB,
    subject BLOB,
    time DATETIME(6) NOT NULL CHECK (MONTH(time) * DAYOFMONTH(time) > 0
        AND DAYOFMONTH(time) <= COALESCE(DAYOFMONTH(LAST_DAY(time)), 0)),
    correlation_id BLOB,
    causation_id BLOB,
    traceparent BLOB,
    content_type BLOB NOT NULL,
    headers MEDIUMTEXT,
    payload MEDIUMBLOB NOT NULL,
    UNIQUE INDEX parked_deliveries_message (consumer, message_id),
    -- For the first delivery of a key, and for the keys of a partition.
    INDEX parked_deliveries_key (consumer, partition, key(255), id),
    -- For deliveries without a key, which have no order.
    INDEX parked_deliveries_keyless (consumer, partition, key(1), next_attempt_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
DROP TRIGGER IF EXISTS {refuse_content_parked};
CREATE TRIGGER {refuse_content_parked} BEFORE UPDATE ON {parked_deliveries} FOR EACH ROW
BEGIN
    IF NOT (NEW.payload <=> OLD.payload AND NEW.headers <=> OLD.headers) AND (
        -- The headers of a blanked message in hexadecimal, because blanks at the end of a text do not count.
        LENGTH(NEW.payload) > 0
        OR COALESCE(HEX(NEW.headers), '') <> '7B227477696E626F782D7265646163746564223A2274727565227D'
    ) THEN
        SIGNAL SQLSTATE 'TB003' SET
            MYSQL_ERRNO = 45003,
            MESSAGE_TEXT = 'twinbox: what is stored is only blanked: no other content takes its place';
    END IF;
END;
DROP TRIGGER IF EXISTS {refuse_content_dead};
CREATE TRIGGER {refuse_content_dead} BEFORE UPDATE ON {dead_letters} FOR EACH ROW
BEGIN
    IF NOT (NEW.payload <=> OLD.payload AND NEW.headers <=> OLD.headers) AND (
        -- The headers of a blanked message in hexadecimal, because blanks at the end of a text do not count.
        LENGTH(NEW.payload) > 0
        OR COALESCE(HEX(NEW.headers), '') <> '7B227477696E626F782D7265646163746564223A2274727565227D'
    ) THEN
        SIGNAL SQLSTATE 'TB003' SET
            MYSQL_ERRNO = 45003,
            MESSAGE_TEXT = 'twinbox: what is stored is only blanked: no other content takes its place';
    END IF;
END;

-- The time of the newest message whose claim was deleted. A message that is no newer and has no claim may
-- have been handled or not.
CREATE TABLE IF NOT EXISTS {purge_marks} (
    consumer VARBINARY(255) NOT NULL PRIMARY KEY,
    time DATETIME(6) NOT NULL CHECK (MONTH(time) * DAYOFMONTH(time) > 0
        AND DAYOFMONTH(time) <= COALESCE(DAYOFMONTH(LAST_DAY(time)), 0))
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Claims that a replay took back, so that a message runs again: once for each replay.
CREATE TABLE IF NOT EXISTS {superseded_claims} (
    consumer VARBINARY(255) NOT NULL,
    message_id BINARY(16) NOT NULL,
    -- The token of the replay.
    replay BINARY(16) NOT NULL,
    -- The claim, if there was one.
    state VARBINARY(64),
    payload_hash VARBINARY(32),
    claimed_at DATETIME(6) CHECK (MONTH(claimed_at) * DAYOFMONTH(claimed_at) > 0
        AND DAYOFMONTH(claimed_at) <= COALESCE(DAYOFMONTH(LAST_DAY(claimed_at)), 0)),
    superseded_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(superseded_at) * DAYOFMONTH(superseded_at) > 0
            AND DAYOFMONTH(superseded_at) <= COALESCE(DAYOFMONTH(LAST_DAY(superseded_at)), 0)),
    PRIMARY KEY (consumer, message_id, replay)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Consumers that have run on this database.
CREATE TABLE IF NOT EXISTS {consumers} (
    consumer VARBINARY(255) NOT NULL PRIMARY KEY,
    seen_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) CHECK (MONTH(seen_at) * DAYOFMONTH(seen_at) > 0
        AND DAYOFMONTH(seen_at) <= COALESCE(DAYOFMONTH(LAST_DAY(seen_at)), 0)),
    -- Why an operator paused the consumer. NULL: it is not paused.
    pause_reason TEXT,
    -- Where at its broker the consumer has its messages, in a format of that broker.
    address TEXT
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
