-- What somebody did by hand: written before it is done, and counted after.
CREATE TABLE {audit} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    who text NOT NULL,
    what text NOT NULL,
    -- To what, or to which.
    target text NOT NULL,
    reason text,
    -- How many it was done to. None: it is not known to have ended.
    count bigint
);

-- Consumers that have run here, and why somebody holds them back.
CREATE TABLE {consumers} (
    consumer text PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now(),
    paused text
);

-- When a dead letter is tried again, and how often at most. An attempt is counted before it is made.
ALTER TABLE {dead_letters} ADD COLUMN redrive_at timestamptz;
ALTER TABLE {dead_letters} ADD COLUMN redrives_left bigint NOT NULL DEFAULT 0;
CREATE INDEX dead_letters_redrive ON {dead_letters} (consumer, redrive_at) WHERE redrives_left > 0;

-- When the destination was new.
ALTER TABLE {cursors} ADD COLUMN started_at timestamptz;
