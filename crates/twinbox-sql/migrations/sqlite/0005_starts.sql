-- Starts of a handler that are not known to have ended. The first may have been made beside other messages; each
-- that follows was made alone.
ALTER TABLE {attempts} ADD COLUMN starts integer NOT NULL DEFAULT 0;
