-- Idempotency keys that a client has made for its calls of vendors, one for each business action.
CREATE TABLE IF NOT EXISTS {client_keys} (
    -- What is called, such as `charges.create`, and for which business action, such as `order-7`.
    operation VARBINARY(120) NOT NULL CHECK (LENGTH(operation) >= 1),
    business_id VARBINARY(255) NOT NULL CHECK (LENGTH(business_id) >= 1),
    key BINARY(16) NOT NULL,
    -- 'sent': a call without a key of the vendor is under way, or may have acted.
    state VARBINARY(64) NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'done')),
    -- What the vendor calls the thing that it made.
    provider_ref VARBINARY(255),
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(created_at) * DAYOFMONTH(created_at) > 0
            AND DAYOFMONTH(created_at) <= COALESCE(DAYOFMONTH(LAST_DAY(created_at)), 0)),
    ended_at DATETIME(6) CHECK (MONTH(ended_at) * DAYOFMONTH(ended_at) > 0
        AND DAYOFMONTH(ended_at) <= COALESCE(DAYOFMONTH(LAST_DAY(ended_at)), 0)),
    PRIMARY KEY (operation, business_id),
    -- For the purge.
    INDEX client_keys_ended_at (ended_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- A session of MariaDB may turn the rules of columns off, and then write what no program can read.
DROP TRIGGER IF EXISTS {unchecked_clients};
CREATE TRIGGER {unchecked_clients} BEFORE INSERT ON {client_keys} FOR EACH ROW
BEGIN
    /*M!100600 IF @@SESSION.check_constraint_checks = 0 THEN
        SIGNAL SQLSTATE 'TB004' SET
            MYSQL_ERRNO = 45004,
            MESSAGE_TEXT = 'twinbox: this session checks no columns: SET check_constraint_checks = 1';
    END IF; */
END;
