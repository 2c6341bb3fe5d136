-- When the message was made, by its own account.
ALTER TABLE {inbox} ADD COLUMN time timestamptz;
-- For the oldest claims of a consumer. `claimed_at` is no earlier than `time`, whatever the clock of its producer says.
CREATE INDEX inbox_claimed_at ON {inbox} (consumer, claimed_at);

-- The newest message of a consumer whose claim was deleted. Of one that is no newer and has no claim nobody can tell
-- whether it was handled.
CREATE TABLE {purge_marks} (
    consumer text PRIMARY KEY,
    time timestamptz NOT NULL
);

-- Called behind the insert of a claim, so that it sees what was committed while that waited: the mark is moved before
-- the first claim is deleted, and a function that is volatile looks anew.
CREATE FUNCTION {purge_mark}(of_consumer text) RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT time FROM {purge_marks} WHERE consumer = of_consumer);
END $$;
