-- When the message was made, by its own account.
ALTER TABLE {inbox} ADD COLUMN time INTEGER;
-- For the oldest claims of a consumer. `claimed_at` is no earlier than `time`, whatever the clock of its producer says.
CREATE INDEX {inbox_claimed_at} ON {inbox} (consumer, claimed_at);

-- The newest message of a consumer whose claim was deleted. Of one that is no newer and has no claim nobody can tell
-- whether it was handled.
CREATE TABLE {purge_marks} (
    consumer TEXT PRIMARY KEY,
    time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
