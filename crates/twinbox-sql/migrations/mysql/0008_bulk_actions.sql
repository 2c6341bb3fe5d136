-- Acts of operators on all dead letters that match a filter. Relays and consumers carry them out, in small
-- transactions, each of which also moves the place of its row.
CREATE TABLE IF NOT EXISTS {bulk_actions} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    action VARBINARY(64) NOT NULL CHECK (action IN ('redrive', 'discard')),
    -- The dead letters, as a filter in JSON. It names one consumer or one destination.
    filter TEXT NOT NULL CHECK (JSON_TYPE(filter) = 'OBJECT'),
    -- The time between two redriven dead letters, in microseconds.
    spacing BIGINT NOT NULL CHECK (spacing >= 0),
    -- How many dead letters matched when it was planned, counted up to a limit.
    planned BIGINT NOT NULL,
    state VARBINARY(64) NOT NULL DEFAULT 'running'
        CHECK (state IN ('running', 'done', 'cancelled', 'failed')),
    -- The last dead letter that was looked at: its time, and its number or position.
    after_time DATETIME(6) NOT NULL DEFAULT '1970-01-01' CHECK (MONTH(after_time) * DAYOFMONTH(after_time) > 0
        AND DAYOFMONTH(after_time) <= COALESCE(DAYOFMONTH(LAST_DAY(after_time)), 0)),
    after_number BIGINT NOT NULL DEFAULT 0,
    looked_at BIGINT NOT NULL DEFAULT 0,
    changed BIGINT NOT NULL DEFAULT 0,
    -- Its entry in the audit, which gets the number of changed dead letters at the end.
    audit_id BIGINT NOT NULL,
    made_by TEXT NOT NULL,
    reason TEXT,
    -- Why it has failed: it cannot be read, and what it had changed stays changed.
    error TEXT,
    -- Later dead letters are left alone.
    made_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) CHECK (MONTH(made_at) * DAYOFMONTH(made_at) > 0
        AND DAYOFMONTH(made_at) <= COALESCE(DAYOFMONTH(LAST_DAY(made_at)), 0)),
    ended_at DATETIME(6) CHECK (MONTH(ended_at) * DAYOFMONTH(ended_at) > 0
        AND DAYOFMONTH(ended_at) <= COALESCE(DAYOFMONTH(LAST_DAY(ended_at)), 0)),
    owner BINARY(16),
    lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01'
        CHECK (MONTH(lease_until) * DAYOFMONTH(lease_until) > 0
            AND DAYOFMONTH(lease_until) <= COALESCE(DAYOFMONTH(LAST_DAY(lease_until)), 0)),
    UNIQUE INDEX bulk_actions_audit (audit_id),
    -- For those that run.
    INDEX bulk_actions_running (state, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who makes an action has just written its entry of the audit, in his own name, and it runs once: no act
-- hides behind the entry of somebody else, or behind an old one.
DROP TRIGGER IF EXISTS {refuse_bulk_action};
CREATE TRIGGER {refuse_bulk_action} BEFORE INSERT ON {bulk_actions} FOR EACH ROW
BEGIN
    IF NOT EXISTS (
        SELECT 1
        FROM {audit} a
        WHERE a.id = NEW.audit_id AND a.operator = NEW.made_by AND a.count IS NULL
            AND SUBSTRING_INDEX(a.database_user, '@', 1) = SUBSTRING_INDEX(USER(), '@', 1)
            AND a.at > CONVERT_TZ(SYSDATE(6), @@SESSION.time_zone, '+00:00') - INTERVAL 1 MINUTE
    ) THEN
        SIGNAL SQLSTATE 'TB007' SET
            MYSQL_ERRNO = 45007,
            MESSAGE_TEXT = 'twinbox: a bulk action has a new audit entry of its maker, and runs once';
    END IF;
END;
DROP TRIGGER IF EXISTS {refuse_second_run};
CREATE TRIGGER {refuse_second_run} BEFORE UPDATE ON {bulk_actions} FOR EACH ROW
BEGIN
    IF OLD.state <> 'running' AND NEW.state <> OLD.state THEN
        SIGNAL SQLSTATE 'TB007' SET
            MYSQL_ERRNO = 45007,
            MESSAGE_TEXT = 'twinbox: a bulk action has a new audit entry of its maker, and runs once';
    END IF;
END;
