-- Past messages again: a range of the log, by a cursor `replay:ID` of its own, to a destination that has settled it.
CREATE TABLE {replays} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- What brokers and inboxes know it by: ids start over in a database that was restored, and this does not.
    token uuid NOT NULL UNIQUE,
    destination text NOT NULL,
    -- For whom alone the messages are to run again. None: the inbox of each consumer removes what it knows.
    consumer text,
    selection text NOT NULL CHECK (jsonb_typeof(selection::jsonb) = 'object'),
    -- How far the destination had settled the log when the replay was made: what is beyond comes by itself.
    p bigint NOT NULL,
    w bigint NOT NULL,
    position bigint NOT NULL,
    -- Positions of the first and the last message that is selected, and how many there are.
    first bigint NOT NULL,
    last bigint NOT NULL,
    selected bigint NOT NULL,
    -- Messages a second, at most.
    rate bigint CHECK (rate > 0),
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    made_by text NOT NULL,
    reason text,
    made_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz
);
CREATE INDEX replays_running ON {replays} (destination, id) WHERE state = 'running';

-- For finding a time in the log, at next to no cost for who publishes. Publishers wait while it is made: where the log is
-- large, make it before, with CONCURRENTLY and this name.
CREATE INDEX IF NOT EXISTS outbox_time ON {outbox} USING brin (time) WITH (pages_per_range = 32, autosummarize = on);

-- Claims that were taken back so that a message runs again: once for each replay.
CREATE TABLE {inbox_superseded} (
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    -- The token of the replay.
    replay uuid NOT NULL,
    -- Of the claim, if there was one.
    state text,
    payload_hash bytea,
    claimed_at timestamptz,
    superseded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id, replay)
);
