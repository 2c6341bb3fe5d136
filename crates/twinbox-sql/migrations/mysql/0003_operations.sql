-- Responses of operations with an idempotency key. A retry gets the stored response and runs nothing.
CREATE TABLE IF NOT EXISTS {idempotency_keys} (
    -- SHA-256 of tenant, principal, scope and key, each with its length. So it fits an index. BINARY would
    -- fill a shorter value up with zeros.
    slot VARBINARY(32) NOT NULL PRIMARY KEY CHECK (LENGTH(slot) = 32),
    tenant VARBINARY(255) NOT NULL,
    principal VARBINARY(255) NOT NULL,
    scope VARBINARY(1024) NOT NULL,
    key VARBINARY(1024) NOT NULL,
    request_hash VARBINARY(32) NOT NULL,
    -- The algorithm, and the members that it left out. Later releases compare requests by the same.
    hash_alg TEXT NOT NULL,
    -- 'failed': a final failure. A retry gets it like a success.
    status VARBINARY(64) NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'complete', 'failed')),
    http_code BIGINT,
    response_headers MEDIUMBLOB,
    response_body MEDIUMBLOB,
    body_kind VARBINARY(64) NOT NULL DEFAULT 'omitted' CHECK (body_kind IN ('inline', 'ref', 'omitted')),
    result_ref TEXT,
    -- The headers of the codec that encoded the body, as a JSON object. NULL: it is not encoded.
    codec_headers MEDIUMTEXT CHECK (JSON_VALID(codec_headers)),
    -- The lease of an operation that runs outside a transaction: its owner, its end, and how far it has come.
    owner BINARY(16),
    lease_until DATETIME(6) CHECK (MONTH(lease_until) * DAYOFMONTH(lease_until) > 0
        AND DAYOFMONTH(lease_until) <= COALESCE(DAYOFMONTH(LAST_DAY(lease_until)), 0)),
    recovery_point MEDIUMTEXT,
    -- The tokens for vendors and their times: a JSON object of microseconds since 1970. NULL: none was made.
    tokens MEDIUMTEXT CHECK (JSON_VALID(tokens)),
    -- Whether a vendor may have been called without a final response. Such a row never expires. It is never
    -- NULL, although MariaDB takes no NOT NULL here.
    unfinished BOOLEAN
        GENERATED ALWAYS AS (
            COALESCE(
                (status = 'pending' OR status = 'failed' AND http_code >= 500)
                    AND (recovery_point IS NOT NULL OR tokens IS NOT NULL),
                FALSE
            )
        ) STORED,
    attempts BIGINT NOT NULL DEFAULT 1,
    -- Attempts among these that ended without a failure.
    uncounted_attempts BIGINT NOT NULL DEFAULT 0,
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(created_at) * DAYOFMONTH(created_at) > 0
            AND DAYOFMONTH(created_at) <= COALESCE(DAYOFMONTH(LAST_DAY(created_at)), 0)),
    updated_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(updated_at) * DAYOFMONTH(updated_at) > 0
            AND DAYOFMONTH(updated_at) <= COALESCE(DAYOFMONTH(LAST_DAY(updated_at)), 0)),
    expires_at DATETIME(6) NOT NULL CHECK (MONTH(expires_at) * DAYOFMONTH(expires_at) > 0
        AND DAYOFMONTH(expires_at) <= COALESCE(DAYOFMONTH(LAST_DAY(expires_at)), 0)),
    -- For the purge.
    INDEX idempotency_keys_expires_at (expires_at),
    -- For quotas.
    INDEX idempotency_keys_principal (tenant, principal, expires_at),
    -- For operators.
    INDEX idempotency_keys_key (scope, key),
    -- For operators too: the rows for which a vendor may have been called.
    INDEX idempotency_keys_unfinished (unfinished, created_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- A session of MariaDB may turn the rules of columns off, and then write what no program can read.
DROP TRIGGER IF EXISTS {unchecked_keys};
CREATE TRIGGER {unchecked_keys} BEFORE INSERT ON {idempotency_keys} FOR EACH ROW
BEGIN
    /*M!100600 IF @@SESSION.check_constraint_checks = 0 THEN
        SIGNAL SQLSTATE 'TB004' SET
            MYSQL_ERRNO = 45004,
            MESSAGE_TEXT = 'twinbox: this session checks no columns: SET check_constraint_checks = 1';
    END IF; */
END;

-- Who blanks an operation writes nothing else into it: a retry would get it, or go on from there. Who takes a
-- key, saves how far it has come, or ends its operation writes a column as well that nobody else may: its
-- status, its attempts, its end or its lease.
DROP TRIGGER IF EXISTS {refuse_response};
CREATE TRIGGER {refuse_response} BEFORE UPDATE ON {idempotency_keys} FOR EACH ROW
BEGIN
    -- The trigger runs as the account that made it. That one may do everything anyway.
    IF SUBSTRING_INDEX(USER(), '@', 1) <> SUBSTRING_INDEX(CURRENT_USER(), '@', 1)
        AND NEW.status = OLD.status AND NEW.attempts = OLD.attempts AND NEW.expires_at = OLD.expires_at
        AND NEW.lease_until <=> OLD.lease_until
        AND NOT (
            (NEW.principal = '' OR NEW.principal = OLD.principal)
            AND (NEW.key = '' OR NEW.key = OLD.key)
            AND (NEW.body_kind = 'omitted' OR NEW.body_kind = OLD.body_kind)
            AND (NEW.response_headers IS NULL OR NEW.response_headers <=> OLD.response_headers)
            AND (NEW.response_body IS NULL OR NEW.response_body <=> OLD.response_body)
            AND (NEW.result_ref IS NULL OR NEW.result_ref <=> OLD.result_ref)
            AND (NEW.codec_headers IS NULL OR NEW.codec_headers <=> OLD.codec_headers)
            AND (NEW.recovery_point IS NULL OR NEW.recovery_point <=> OLD.recovery_point)
        ) THEN
        SIGNAL SQLSTATE 'TB003' SET
            MYSQL_ERRNO = 45003,
            MESSAGE_TEXT = 'twinbox: what is stored is only blanked: no other content takes its place';
    END IF;
END;

-- What operators may read: no key and no response. The view reads the table with the rights of the account
-- that creates it, so operators need a right on the view alone.
CREATE OR REPLACE SQL SECURITY DEFINER VIEW {idempotency_audit} AS
    SELECT
        LOWER(LEFT(HEX(slot), 8)) AS slot,
        CONVERT(tenant USING utf8mb4) AS tenant,
        CONVERT(principal USING utf8mb4) AS principal,
        CONVERT(scope USING utf8mb4) AS scope,
        hash_alg,
        CONVERT(status USING utf8mb4) AS status,
        http_code,
        CONVERT(body_kind USING utf8mb4) AS body_kind,
        LENGTH(response_body) AS body_bytes,
        result_ref,
        owner,
        lease_until,
        recovery_point,
        tokens,
        unfinished,
        attempts,
        created_at,
        updated_at,
        expires_at
    FROM {idempotency_keys};

-- Webhooks that were received, so that a repeated one runs nothing. They are not among the idempotency keys:
-- the id of a sender must not meet the key of a caller.
CREATE TABLE IF NOT EXISTS {webhook_receipts} (
    provider VARBINARY(255) NOT NULL,
    endpoint VARBINARY(255) NOT NULL,
    dedup_id VARBINARY(255) NOT NULL,
    -- The signed part of the request that the id is from.
    dedup_basis VARBINARY(64) NOT NULL CHECK (dedup_basis IN ('header', 'body', 'digest')),
    payload_hash VARBINARY(32) NOT NULL,
    -- The index of the secret that verified the signature.
    secret_index BIGINT NOT NULL,
    -- Committed so, it is the receipt of a handler that has committed by itself, and not come to its end.
    is_open BOOLEAN NOT NULL DEFAULT FALSE,
    received_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(received_at) * DAYOFMONTH(received_at) > 0
            AND DAYOFMONTH(received_at) <= COALESCE(DAYOFMONTH(LAST_DAY(received_at)), 0)),
    expires_at DATETIME(6) NOT NULL CHECK (MONTH(expires_at) * DAYOFMONTH(expires_at) > 0
        AND DAYOFMONTH(expires_at) <= COALESCE(DAYOFMONTH(LAST_DAY(expires_at)), 0)),
    PRIMARY KEY (provider, endpoint, dedup_id),
    -- For the purge.
    INDEX webhook_receipts_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- A session of MariaDB may turn the rules of columns off, and then write what no program can read.
DROP TRIGGER IF EXISTS {unchecked_receipts};
CREATE TRIGGER {unchecked_receipts} BEFORE INSERT ON {webhook_receipts} FOR EACH ROW
BEGIN
    /*M!100600 IF @@SESSION.check_constraint_checks = 0 THEN
        SIGNAL SQLSTATE 'TB004' SET
            MYSQL_ERRNO = 45004,
            MESSAGE_TEXT = 'twinbox: this session checks no columns: SET check_constraint_checks = 1';
    END IF; */
END;

-- Changes by operators. A row is written before the change, and completed after it.
CREATE TABLE IF NOT EXISTS {audit} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) CHECK (MONTH(at) * DAYOFMONTH(at) > 0
        AND DAYOFMONTH(at) <= COALESCE(DAYOFMONTH(LAST_DAY(at)), 0)),
    -- As the operator says, and as the database knows: the login, and not the account that it became. A
    -- trigger knows the login alone.
    operator TEXT NOT NULL,
    database_user VARCHAR(400) NOT NULL DEFAULT (USER()),
    command TEXT NOT NULL,
    -- What the command changed: a destination, a consumer, a key.
    target TEXT NOT NULL,
    reason TEXT,
    -- The number of changed rows. NULL: the command has no known end.
    count BIGINT
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- A session may set the time that its statements see, but not this one.
DROP TRIGGER IF EXISTS {audit_time};
CREATE TRIGGER {audit_time} BEFORE INSERT ON {audit} FOR EACH ROW
    SET NEW.at = CONVERT_TZ(SYSDATE(6), @@SESSION.time_zone, '+00:00');
-- The end of an act is written once, by the account that began it. The end of a bulk action is written by who
-- has carried it out or cancelled it, and is the number of its row.
DROP TRIGGER IF EXISTS {refuse_audit_count};
CREATE TRIGGER {refuse_audit_count} BEFORE UPDATE ON {audit} FOR EACH ROW
BEGIN
    IF NOT (NEW.count <=> OLD.count) AND (
        OLD.count IS NOT NULL
        OR NOT COALESCE(
            (
                SELECT b.state <> 'running' AND b.changed = NEW.count
                FROM {bulk_actions} b
                WHERE b.audit_id = OLD.id
            ),
            SUBSTRING_INDEX(USER(), '@', 1) = SUBSTRING_INDEX(OLD.database_user, '@', 1)
        )
    ) THEN
        SIGNAL SQLSTATE 'TB006' SET
            MYSQL_ERRNO = 45006,
            MESSAGE_TEXT = 'twinbox: the count of an audit entry is written once, by the role that made it';
    END IF;
END;
