-- Side effects: acts outside the database. A row is planned in the transaction that wants the act. A
-- dispatcher sends its request later. The columns that an application writes are one byte longer than their
-- bounds, as in the log.
CREATE TABLE IF NOT EXISTS {side_effects} (
    -- The order of effects with one key.
    position BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- Derived from source_id and kind. NULL until a dispatcher has seen a row that was planned in SQL.
    id BINARY(16),
    -- What wants the act: a message, an operation, a row of the application. BINARY would fill a shorter
    -- value up with zeros.
    source_id VARBINARY(17) NOT NULL CHECK (LENGTH(source_id) = 16),
    -- `base` or `base:qualifier`, such as `email.welcome` or `webhook.paid:ep_42`.
    kind VARBINARY(256) NOT NULL CHECK (LENGTH(kind) BETWEEN 1 AND 255 AND kind NOT LIKE ':%'),
    vendor VARBINARY(121) NOT NULL CHECK (LENGTH(vendor) BETWEEN 1 AND 120),
    -- Effects of one vendor and key are sent one after another. NULL: in no order.
    key VARBINARY(256) CHECK (LENGTH(key) BETWEEN 1 AND 255),
    -- 'pending': the vendor has done nothing. 'fired': it was sent, and no answer is known yet.
    state VARBINARY(64) NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'fired', 'confirmed', 'unknown', 'failed', 'compensated')),
    -- The request as it was planned. Credentials are not part of it.
    method VARBINARY(17) NOT NULL DEFAULT 'POST' CHECK (LENGTH(method) BETWEEN 1 AND 16),
    target VARBINARY(2049) NOT NULL DEFAULT '' CHECK (LENGTH(target) <= 2048),
    content_type VARBINARY(256) NOT NULL DEFAULT 'application/json' CHECK (LENGTH(content_type) <= 255),
    headers MEDIUMTEXT CHECK (
        LENGTH(headers) <= 65536 AND JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'
    ),
    request MEDIUMBLOB NOT NULL CHECK (LENGTH(request) <= 983040),
    -- The headers of the codec that encoded the request, as a JSON object. NULL: it is not encoded.
    codec_headers MEDIUMTEXT CHECK (JSON_VALID(codec_headers)),
    correlation_id VARBINARY(256) CHECK (LENGTH(correlation_id) <= 255),
    traceparent VARBINARY(56) CHECK (LENGTH(traceparent) <= 55),
    -- The effect that this one compensates.
    compensates BIGINT,
    -- Counts up only after it is known that the vendor did nothing. Each generation has a key of its own.
    generation BIGINT NOT NULL DEFAULT 0,
    -- The key for the vendor. NULL: this generation was never sent.
    idempotency_key VARBINARY(255),
    -- How long the vendor surely remembers the key. NULL: it was never sent, or the vendor knows no keys.
    provider_key_expires_at DATETIME(6)
        CHECK (MONTH(provider_key_expires_at) * DAYOFMONTH(provider_key_expires_at) > 0
            AND DAYOFMONTH(provider_key_expires_at)
                <= COALESCE(DAYOFMONTH(LAST_DAY(provider_key_expires_at)), 0)),
    -- How often the request was sent, and how many of these sends failed.
    attempts BIGINT NOT NULL DEFAULT 0,
    failures BIGINT NOT NULL DEFAULT 0,
    -- The process that sends it. `next_attempt_at` is the end of its lease.
    owner BINARY(16),
    -- When a dispatcher looks at the row next. NULL: it has ended, or waits for an earlier one of its key.
    next_attempt_at DATETIME(6) DEFAULT (UTC_TIMESTAMP(6)),
    first_fired_at DATETIME(6) CHECK (MONTH(first_fired_at) * DAYOFMONTH(first_fired_at) > 0
        AND DAYOFMONTH(first_fired_at) <= COALESCE(DAYOFMONTH(LAST_DAY(first_fired_at)), 0)),
    fired_at DATETIME(6) CHECK (MONTH(fired_at) * DAYOFMONTH(fired_at) > 0
        AND DAYOFMONTH(fired_at) <= COALESCE(DAYOFMONTH(LAST_DAY(fired_at)), 0)),
    -- NULL while it is open. An unknown effect is open until a person has resolved it.
    ended_at DATETIME(6) CHECK (MONTH(ended_at) * DAYOFMONTH(ended_at) > 0
        AND DAYOFMONTH(ended_at) <= COALESCE(DAYOFMONTH(LAST_DAY(ended_at)), 0)),
    -- What the vendor calls the thing that it made.
    provider_ref TEXT,
    http_code BIGINT,
    error_code VARBINARY(64),
    last_error TEXT,
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(created_at) * DAYOFMONTH(created_at) > 0
            AND DAYOFMONTH(created_at) <= COALESCE(DAYOFMONTH(LAST_DAY(created_at)), 0)),
    CONSTRAINT {effects_next_attempt_at} CHECK (MONTH(next_attempt_at) * DAYOFMONTH(next_attempt_at) > 0
        AND DAYOFMONTH(next_attempt_at) <= COALESCE(DAYOFMONTH(LAST_DAY(next_attempt_at)), 0)),
    UNIQUE INDEX side_effects_id (id),
    UNIQUE INDEX side_effects_source_id_kind_key (source_id, kind),
    -- For rows with a time. The others come first in the index, and no statement reads them there.
    INDEX side_effects_due (vendor, next_attempt_at, position),
    -- For the first open effect of a key.
    INDEX side_effects_key (vendor, key, ended_at, position),
    -- For operators: unknown and failed effects.
    INDEX side_effects_problem (state, position),
    -- For the purge.
    INDEX side_effects_ended_at (ended_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- A session of MariaDB may turn the rules of columns off, and then write what no program can read.
DROP TRIGGER IF EXISTS {unchecked_effects};
CREATE TRIGGER {unchecked_effects} BEFORE INSERT ON {side_effects} FOR EACH ROW
BEGIN
    /*M!100600 IF @@SESSION.check_constraint_checks = 0 THEN
        SIGNAL SQLSTATE 'TB004' SET
            MYSQL_ERRNO = 45004,
            MESSAGE_TEXT = 'twinbox: this session checks no columns: SET check_constraint_checks = 1';
    END IF; */
END;

-- Vendors that must not be called for now.
CREATE TABLE IF NOT EXISTS {vendors} (
    vendor VARBINARY(120) NOT NULL PRIMARY KEY,
    -- The vendor asked for no call before this time.
    closed_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00',
    -- Why an operator paused the vendor. NULL: it is not paused.
    pause_reason TEXT,
    CONSTRAINT {vendors_closed_until} CHECK (MONTH(closed_until) * DAYOFMONTH(closed_until) > 0
        AND DAYOFMONTH(closed_until) <= COALESCE(DAYOFMONTH(LAST_DAY(closed_until)), 0))
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
