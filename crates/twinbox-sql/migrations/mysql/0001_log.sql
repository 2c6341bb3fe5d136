-- MySQL and MariaDB commit after each CREATE. So a run that was cut off leaves a part of a file, and the next
-- run repeats the whole file: each statement may run again.
--
-- Identities and all texts that are compared are VARBINARY. A collation would take some of them for equal,
-- and would ignore spaces at their end. They hold UTF-8, so a producer needs a connection with the character
-- set utf8mb4. All times are UTC, whatever the time zone of the session is.

-- The service that owns these tables. It is fixed here, because messages are identified by it.
CREATE TABLE IF NOT EXISTS {meta} (
    singleton BOOLEAN NOT NULL DEFAULT TRUE PRIMARY KEY CHECK (singleton = TRUE),
    service VARBINARY(255) NOT NULL CHECK (LENGTH(service) >= 1)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The log. It is append-only. A producer in any language may call the procedure `publish`, or insert
-- (type, payload, …) with bound parameters, and never with IGNORE. A column is one byte longer than its
-- bound: a session without strict mode cuts a text to the length of its column and goes on, and the CHECK
-- refuses what is left. The rules have names, because MySQL tells a producer nothing else.
CREATE TABLE IF NOT EXISTS {outbox} (
    position BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id VARBINARY(256) NOT NULL DEFAULT (UUID()),
    source VARBINARY(256),
    type VARBINARY(129) NOT NULL,
    version BIGINT NOT NULL DEFAULT 1,
    key VARBINARY(256),
    subject VARBINARY(1025),
    time DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    correlation_id VARBINARY(256),
    causation_id VARBINARY(256),
    traceparent VARBINARY(56),
    content_type VARBINARY(256) NOT NULL DEFAULT 'application/json',
    headers MEDIUMTEXT,
    payload MEDIUMBLOB NOT NULL,
    CONSTRAINT {outbox_id} CHECK (LENGTH(id) BETWEEN 1 AND 255),
    CONSTRAINT {outbox_source} CHECK (LENGTH(source) BETWEEN 1 AND 255),
    -- A type, or a tombstone: a row that Twinbox writes at a position whose message can never come. MySQL
    -- matches no pattern against bytes, and in latin1 each byte is a character. The pattern finds a wrong
    -- character, because one that ends with `$` would allow a newline after the type.
    CONSTRAINT {outbox_type} CHECK (
        LENGTH(type) BETWEEN 1 AND 128
        AND CONVERT(type USING latin1) COLLATE latin1_bin NOT REGEXP '[^A-Za-z0-9_.-]'
        AND type NOT LIKE '.%'
        AND type NOT LIKE '%.'
        AND type NOT LIKE '%..%'
        OR type = '' AND id = 'tombstone' AND source IS NULL AND key IS NULL AND payload = ''
    ),
    CONSTRAINT {outbox_version} CHECK (version BETWEEN 1 AND 4294967295),
    CONSTRAINT {outbox_key} CHECK (LENGTH(key) <= 255),
    CONSTRAINT {outbox_subject} CHECK (LENGTH(subject) <= 1024),
    -- Not every session refuses a month 0, a day 0 or a 30 February, which no program can read. Each column
    -- with a time has such a rule, in all tables.
    CONSTRAINT {outbox_time} CHECK (time >= '1000-01-01' AND MONTH(time) > 0 AND DAYOFMONTH(time) > 0
        AND DAYOFMONTH(time) <= COALESCE(DAYOFMONTH(LAST_DAY(time)), 0)),
    CONSTRAINT {outbox_correlation_id} CHECK (LENGTH(correlation_id) <= 255),
    CONSTRAINT {outbox_causation_id} CHECK (LENGTH(causation_id) <= 255),
    CONSTRAINT {outbox_traceparent} CHECK (LENGTH(traceparent) <= 55),
    CONSTRAINT {outbox_content_type} CHECK (LENGTH(content_type) <= 255),
    CONSTRAINT {outbox_headers} CHECK (
        LENGTH(headers) <= 65536 AND JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'
    ),
    CONSTRAINT {outbox_payload} CHECK (LENGTH(payload) <= 983040),
    -- For looking a message up by its event id. Not unique: the inbox removes duplicates.
    INDEX outbox_id (id),
    -- For finding a time in the log.
    INDEX outbox_time (time)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Refuses a position that the producer chose. Here 0 is a position that the log is about to give. On a server
-- with a binary log, the account that creates the trigger needs the right SUPER, or the server needs the
-- setting log_bin_trust_function_creators. The trigger runs as that account. Without it no message can be
-- inserted.
DROP TRIGGER IF EXISTS {refuse_position};
CREATE TRIGGER {refuse_position} BEFORE INSERT ON {outbox} FOR EACH ROW
BEGIN
    IF NEW.position <> 0 AND NEW.type <> '' THEN
        SIGNAL SQLSTATE 'TB002' SET
            MYSQL_ERRNO = 45002,
            MESSAGE_TEXT = 'twinbox: leave position out of the INSERT; the log numbers its messages';
    END IF;
END;

-- A session of MariaDB may turn the rules of columns off, and then write what no program can read.
DROP TRIGGER IF EXISTS {unchecked_outbox};
CREATE TRIGGER {unchecked_outbox} BEFORE INSERT ON {outbox} FOR EACH ROW
BEGIN
    /*M!100600 IF @@SESSION.check_constraint_checks = 0 THEN
        SIGNAL SQLSTATE 'TB004' SET
            MYSQL_ERRNO = 45004,
            MESSAGE_TEXT = 'twinbox: this session checks no columns: SET check_constraint_checks = 1';
    END IF; */
END;

-- A stored message may be blanked, and may get no other content: who blanks messages must not forge one.
DROP TRIGGER IF EXISTS {refuse_content_outbox};
CREATE TRIGGER {refuse_content_outbox} BEFORE UPDATE ON {outbox} FOR EACH ROW
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

-- Publishes from any language. The payload is text in the character set of the connection, and is stored in
-- UTF-8. `p_key`, `p_id` and `p_headers` may be NULL. An INSERT fails with the error 1062 if a tombstone has
-- taken its position: it is repeated, and gets another position. The procedure runs with the rights of its
-- caller, who needs those of the INSERT. The parameters are TEXT, because VARCHAR would lose spaces beyond
-- its length. The CAST is for MariaDB, whose UUID() has a type of its own and makes COALESCE refuse any other
-- text.
DROP PROCEDURE IF EXISTS {publish};
CREATE PROCEDURE {publish}(
    IN p_type TEXT CHARACTER SET utf8mb4,
    IN p_key TEXT CHARACTER SET utf8mb4,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4,
    IN p_id TEXT CHARACTER SET utf8mb4,
    IN p_headers MEDIUMTEXT CHARACTER SET utf8mb4
)
    MODIFIES SQL DATA
    SQL SECURITY INVOKER
BEGIN
    DECLARE failures INT DEFAULT 0;
    DECLARE is_taken BOOLEAN DEFAULT FALSE;
    DECLARE problem TEXT;
    DECLARE CONTINUE HANDLER FOR 1062
    BEGIN
        GET DIAGNOSTICS CONDITION 1 problem = MESSAGE_TEXT;
        SET is_taken = TRUE, failures = failures + 1;
        IF failures >= 100 OR problem NOT LIKE '%PRIMARY%' THEN
            RESIGNAL;
        END IF;
    END;
    IF p_payload IS NULL THEN
        SIGNAL SQLSTATE '22004' SET
            MESSAGE_TEXT = 'twinbox: the payload is NULL; the payload null is the text ''null''';
    END IF;
    IF NOT JSON_VALID(p_payload) THEN
        SIGNAL SQLSTATE '22032' SET
            MESSAGE_TEXT = 'twinbox: the payload is not JSON; publish_bytes takes anything else';
    END IF;
    REPEAT
        SET is_taken = FALSE;
        INSERT INTO {outbox} (id, type, key, headers, payload)
        VALUES (COALESCE(p_id, CAST(UUID() AS CHAR)), p_type, p_key, p_headers, p_payload);
    UNTIL NOT is_taken END REPEAT;
END;

-- The same for a payload that is not JSON, or whose JSON is nested deeper than the server reads.
DROP PROCEDURE IF EXISTS {publish_bytes};
CREATE PROCEDURE {publish_bytes}(
    IN p_type TEXT CHARACTER SET utf8mb4,
    IN p_key TEXT CHARACTER SET utf8mb4,
    IN p_payload LONGBLOB,
    IN p_content_type TEXT CHARACTER SET utf8mb4,
    IN p_id TEXT CHARACTER SET utf8mb4,
    IN p_headers MEDIUMTEXT CHARACTER SET utf8mb4
)
    MODIFIES SQL DATA
    SQL SECURITY INVOKER
BEGIN
    DECLARE failures INT DEFAULT 0;
    DECLARE is_taken BOOLEAN DEFAULT FALSE;
    DECLARE problem TEXT;
    DECLARE CONTINUE HANDLER FOR 1062
    BEGIN
        GET DIAGNOSTICS CONDITION 1 problem = MESSAGE_TEXT;
        SET is_taken = TRUE, failures = failures + 1;
        IF failures >= 100 OR problem NOT LIKE '%PRIMARY%' THEN
            RESIGNAL;
        END IF;
    END;
    REPEAT
        SET is_taken = FALSE;
        INSERT INTO {outbox} (id, type, key, content_type, headers, payload)
        VALUES (COALESCE(p_id, CAST(UUID() AS CHAR)), p_type, p_key, p_content_type, p_headers, p_payload);
    UNTIL NOT is_taken END REPEAT;
END;

-- Ticks cut the log. A window holds the messages that became visible between two of them.
CREATE TABLE IF NOT EXISTS {ticks} (
    id BIGINT NOT NULL PRIMARY KEY,
    -- Each position up to this one is settled, or is in a hole.
    newest BIGINT NOT NULL,
    taken_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) CHECK (MONTH(taken_at) * DAYOFMONTH(taken_at) > 0
        AND DAYOFMONTH(taken_at) <= COALESCE(DAYOFMONTH(LAST_DAY(taken_at)), 0)),
    -- For the tick of an age.
    INDEX ticks_taken_at (taken_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT IGNORE INTO {ticks} (id, newest, taken_at) VALUES (0, 0, '1970-01-01 00:00:00');

-- Positions up to the `newest` of a tick that had no committed row then: a transaction may commit one yet.
CREATE TABLE IF NOT EXISTS {holes} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- Both are part of the hole.
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    -- The tick that found it, and the tick that closed it. The highest number: it is open.
    opened_by BIGINT NOT NULL,
    closed_by BIGINT NOT NULL DEFAULT 9223372036854775807,
    -- When to look next whether a row can still come.
    probe_at DATETIME(6) NOT NULL CHECK (MONTH(probe_at) * DAYOFMONTH(probe_at) > 0
        AND DAYOFMONTH(probe_at) <= COALESCE(DAYOFMONTH(LAST_DAY(probe_at)), 0)),
    CHECK (first <= last),
    -- For the open holes, those of a tick, and those that the ticks of a window closed.
    INDEX holes_closed_by (closed_by, first, last, opened_by),
    INDEX holes_first (first)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A row that a reader changes, so that its commit flushes what the server has shown before it is on disk.
CREATE TABLE IF NOT EXISTS {flushes} (
    singleton BOOLEAN NOT NULL PRIMARY KEY DEFAULT true CHECK (singleton = TRUE),
    number BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO {flushes} (singleton, number) VALUES (true, 0);

-- Locks of keys, for producers that have no row to lock. Keys share rows by their checksum.
CREATE TABLE IF NOT EXISTS {key_locks} (
    slot BIGINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
INSERT IGNORE INTO {key_locks} (slot)
    WITH RECURSIVE slots (slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM slots WHERE slot < 511)
    SELECT slot FROM slots;

-- How far each reader has settled the log, and which process owns it.
CREATE TABLE IF NOT EXISTS {cursors} (
    destination VARBINARY(255) NOT NULL PRIMARY KEY,
    -- The window, by the ids of its ticks. All messages before it are settled, and those inside it up to
    -- `position`.
    p BIGINT NOT NULL,
    w BIGINT NOT NULL,
    position BIGINT NOT NULL DEFAULT 0,
    epoch BIGINT NOT NULL DEFAULT 0,
    owner BINARY(16),
    lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00'
        CHECK (MONTH(lease_until) * DAYOFMONTH(lease_until) > 0
            AND DAYOFMONTH(lease_until) <= COALESCE(DAYOFMONTH(LAST_DAY(lease_until)), 0)),
    partitions BIGINT,
    -- The duration of the lease, in microseconds.
    lease BIGINT NOT NULL DEFAULT 0,
    -- The ticks of the window that is being read or searched. The settled window moves towards it.
    ahead_p BIGINT NOT NULL DEFAULT 0,
    ahead_w BIGINT NOT NULL DEFAULT 0,
    -- How many destinations the process of the owner owned when it wrote the row.
    owned BIGINT NOT NULL DEFAULT 0,
    -- The process with a smaller share that wishes for the lease, how many destinations it owns, and until
    -- when the wish counts. NULL: the owner has seen the end of the last wish.
    wished_by BINARY(16),
    wisher_owned BIGINT,
    wished_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00'
        CHECK (MONTH(wished_until) * DAYOFMONTH(wished_until) > 0
            AND DAYOFMONTH(wished_until) <= COALESCE(DAYOFMONTH(LAST_DAY(wished_until)), 0)),
    -- Why an operator paused the destination. NULL: it is not paused.
    pause_reason TEXT,
    -- When the destination was new.
    started_at DATETIME(6) CHECK (MONTH(started_at) * DAYOFMONTH(started_at) > 0
        AND DAYOFMONTH(started_at) <= COALESCE(DAYOFMONTH(LAST_DAY(started_at)), 0)),
    -- Where at its broker the destination has its messages, in a format of that broker.
    address TEXT,
    CHECK (p <= w)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The secrets of destinations. A relay makes names for the broker with one, which nobody else can make.
CREATE TABLE IF NOT EXISTS {destination_secrets} (
    destination VARBINARY(255) NOT NULL PRIMARY KEY,
    secret BINARY(32) NOT NULL
) ENGINE=InnoDB;

-- The current run of the server: a table in memory is empty after a start, when commits may be lost. Whoever
-- relies on memory compares the run first. A replica has runs of its own, by its server id.
CREATE TABLE IF NOT EXISTS {server_run} (
    server_id BIGINT NOT NULL PRIMARY KEY,
    id BIGINT NOT NULL
) ENGINE=MEMORY;

-- Messages that a destination refused, and the later messages of their keys. The messages themselves stay in
-- the log. Waiting rows are tried again, those of one key in the order of their positions.
CREATE TABLE IF NOT EXISTS {parked_messages} (
    destination VARBINARY(255) NOT NULL,
    position BIGINT NOT NULL,
    key VARBINARY(255),
    type VARBINARY(128) NOT NULL,
    state VARBINARY(64) NOT NULL CHECK (state IN ('waiting', 'dead', 'blocking')),
    -- Whether later messages of the key wait behind this one.
    blocks_key BOOLEAN NOT NULL,
    attempts BIGINT NOT NULL,
    next_attempt_at DATETIME(6) NOT NULL CHECK (MONTH(next_attempt_at) * DAYOFMONTH(next_attempt_at) > 0
        AND DAYOFMONTH(next_attempt_at) <= COALESCE(DAYOFMONTH(LAST_DAY(next_attempt_at)), 0)),
    first_error TEXT NOT NULL,
    last_error TEXT NOT NULL,
    -- Groups messages that were given up for one cause.
    fingerprint VARBINARY(64) NOT NULL,
    parked_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(parked_at) * DAYOFMONTH(parked_at) > 0
            AND DAYOFMONTH(parked_at) <= COALESCE(DAYOFMONTH(LAST_DAY(parked_at)), 0)),
    PRIMARY KEY (destination, position),
    -- For waiting rows, the lowest position first, and for blocking rows.
    INDEX parked_messages_waiting (destination, state, position),
    -- For messages without a key, which have no order.
    INDEX parked_messages_keyless (destination, state, key, next_attempt_at),
    -- For the lowest position of a key.
    INDEX parked_messages_key (destination, blocks_key, key, position),
    -- For dead letters and their groups: in order, and by time. They hold all that counts read.
    INDEX parked_messages_group (destination, fingerprint, position, state),
    INDEX parked_messages_group_time (destination, fingerprint, parked_at, state),
    -- For the purge, which keeps parked messages in the log.
    INDEX parked_messages_position (position)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that enter the log later. They have the bounds of the log, so that none is refused then.
CREATE TABLE IF NOT EXISTS {delayed_messages} (
    insert_order BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    not_before DATETIME(6) NOT NULL,
    -- For cancelling. A message without it cannot be cancelled.
    message_id BINARY(16),
    id VARBINARY(256) NOT NULL DEFAULT (UUID()) CHECK (LENGTH(id) BETWEEN 1 AND 255),
    type VARBINARY(129) NOT NULL CHECK (
        LENGTH(type) BETWEEN 1 AND 128
        AND CONVERT(type USING latin1) COLLATE latin1_bin NOT REGEXP '[^A-Za-z0-9_.-]'
        AND type NOT LIKE '.%'
        AND type NOT LIKE '%.'
        AND type NOT LIKE '%..%'
    ),
    version BIGINT NOT NULL DEFAULT 1 CHECK (version BETWEEN 1 AND 4294967295),
    key VARBINARY(256) CHECK (LENGTH(key) <= 255),
    subject VARBINARY(1025) CHECK (LENGTH(subject) <= 1024),
    -- NULL: the time at which it enters the log.
    time DATETIME(6),
    correlation_id VARBINARY(256) CHECK (LENGTH(correlation_id) <= 255),
    causation_id VARBINARY(256) CHECK (LENGTH(causation_id) <= 255),
    traceparent VARBINARY(56) CHECK (LENGTH(traceparent) <= 55),
    content_type VARBINARY(256) NOT NULL DEFAULT 'application/json' CHECK (LENGTH(content_type) <= 255),
    headers MEDIUMTEXT CHECK (
        LENGTH(headers) <= 65536 AND JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'
    ),
    payload MEDIUMBLOB NOT NULL CHECK (LENGTH(payload) <= 983040),
    CONSTRAINT {delayed_not_before} CHECK (
        not_before >= '1000-01-01' AND MONTH(not_before) > 0 AND DAYOFMONTH(not_before) > 0
            AND DAYOFMONTH(not_before) <= COALESCE(DAYOFMONTH(LAST_DAY(not_before)), 0)
    ),
    CONSTRAINT {delayed_time} CHECK (time >= '1000-01-01' AND MONTH(time) > 0 AND DAYOFMONTH(time) > 0
        AND DAYOFMONTH(time) <= COALESCE(DAYOFMONTH(LAST_DAY(time)), 0)),
    INDEX delayed_messages_due (not_before, insert_order),
    INDEX delayed_messages_message_id (message_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
DROP TRIGGER IF EXISTS {unchecked_delayed};
CREATE TRIGGER {unchecked_delayed} BEFORE INSERT ON {delayed_messages} FOR EACH ROW
BEGIN
    /*M!100600 IF @@SESSION.check_constraint_checks = 0 THEN
        SIGNAL SQLSTATE 'TB004' SET
            MYSQL_ERRNO = 45004,
            MESSAGE_TEXT = 'twinbox: this session checks no columns: SET check_constraint_checks = 1';
    END IF; */
END;
DROP TRIGGER IF EXISTS {refuse_content_delayed};
CREATE TRIGGER {refuse_content_delayed} BEFORE UPDATE ON {delayed_messages} FOR EACH ROW
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

-- Replays: a range of the log again, to a destination that has settled it. Each has a cursor `replay:ID`.
CREATE TABLE IF NOT EXISTS {replays} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- The name of the replay for brokers and inboxes. Ids start over in a restored database, tokens do not.
    token BINARY(16) NOT NULL,
    destination VARBINARY(255) NOT NULL,
    -- The one consumer that reprocesses the messages. NULL: a resend, and inboxes remove duplicates.
    consumer VARBINARY(255),
    selection MEDIUMTEXT NOT NULL CHECK (JSON_VALID(selection) AND JSON_TYPE(selection) = 'OBJECT'),
    -- How far the destination had settled the log when the replay was made. Later messages come by
    -- themselves.
    p BIGINT NOT NULL,
    w BIGINT NOT NULL,
    position BIGINT NOT NULL,
    -- The positions of the first and the last selected message, and the number of selected messages.
    first_position BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    selected BIGINT NOT NULL,
    -- The most messages a second.
    rate BIGINT CHECK (rate > 0),
    state VARBINARY(64) NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    made_by TEXT NOT NULL,
    reason TEXT,
    made_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) CHECK (MONTH(made_at) * DAYOFMONTH(made_at) > 0
        AND DAYOFMONTH(made_at) <= COALESCE(DAYOFMONTH(LAST_DAY(made_at)), 0)),
    ended_at DATETIME(6) CHECK (MONTH(ended_at) * DAYOFMONTH(ended_at) > 0
        AND DAYOFMONTH(ended_at) <= COALESCE(DAYOFMONTH(LAST_DAY(ended_at)), 0)),
    UNIQUE INDEX replays_token (token),
    -- For running replays.
    INDEX replays_running (state, destination, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
