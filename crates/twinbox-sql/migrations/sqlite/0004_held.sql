-- Why somebody opened the breaker of this destination by hand.
ALTER TABLE {cursors} ADD COLUMN held TEXT;
