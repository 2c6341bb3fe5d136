//! The ways on Postgres.
use super::{Way, Ways};
use sqlx::Postgres;
use twinbox::ops::DeviationKind as Kind;

impl Ways for Postgres {
    const VERSION: &str = "SELECT current_setting('server_version_num')::bigint";
    const QUOTES: [&str; 2] = ["", ""];
    const CREATE_OTHER: &str = "CREATE ROLE {other}";
    const DROP_OTHER: &str = "DROP OWNED BY {other}; DROP ROLE {other}";
    const HIDDEN: &[Kind] = &[];
    const WAYS: &[Way] = &[
        Way::new(
            Kind::Right,
            "GRANT UPDATE (key, payload), TRIGGER ON twinbox.outbox TO {role}",
            "REVOKE UPDATE (key, payload), TRIGGER ON twinbox.outbox FROM {role}",
            &[
                "TRIGGER, UPDATE (key, payload) ON outbox: ",
                "REVOKE TRIGGER, UPDATE (\"key\", \"payload\") ON \"twinbox\".\"outbox\" FROM {role}",
            ],
        ),
        Way::new(
            Kind::Right,
            "GRANT MAINTAIN ON twinbox.outbox TO {role}",
            "REVOKE MAINTAIN ON twinbox.outbox FROM {role}",
            &["REVOKE MAINTAIN ON \"twinbox\".\"outbox\" FROM {role}"],
        )
        .since(170_000),
        Way::new(
            Kind::Right,
            r#"CREATE TABLE twinbox."Spy; DROP ""x" ("User" bigint);
            GRANT SELECT, UPDATE ("User") ON twinbox."Spy; DROP ""x" TO {role}"#,
            r#"DROP TABLE twinbox."Spy; DROP ""x""#,
            &[r#"REVOKE SELECT, UPDATE ("User") ON "twinbox"."Spy; DROP ""x" FROM {role}"#],
        ),
        Way::new(
            Kind::Right,
            "GRANT SELECT ON twinbox.inbox TO PUBLIC",
            "REVOKE SELECT ON twinbox.inbox FROM PUBLIC",
            &["SELECT ON inbox, as everybody: REVOKE SELECT ON \"twinbox\".\"inbox\" FROM PUBLIC"],
        ),
        Way::new(
            Kind::Right,
            "GRANT UPDATE ON SEQUENCE twinbox.outbox_position_seq TO {role}",
            "REVOKE UPDATE ON SEQUENCE twinbox.outbox_position_seq FROM {role}",
            &["REVOKE UPDATE ON SEQUENCE \"twinbox\".\"outbox_position_seq\" FROM {role}"],
        ),
        Way::new(
            Kind::Right,
            "GRANT USAGE ON TYPE twinbox.event_key TO PUBLIC",
            "REVOKE USAGE ON TYPE twinbox.event_key FROM PUBLIC",
            &["REVOKE USAGE ON TYPE \"twinbox\".\"event_key\" FROM PUBLIC"],
        ),
        Way::new(
            Kind::Right,
            "GRANT CREATE ON SCHEMA twinbox TO {role}",
            "REVOKE CREATE ON SCHEMA twinbox FROM {role}",
            &["REVOKE CREATE ON SCHEMA twinbox FROM {role}"],
        ),
        Way::new(
            Kind::Right,
            "DO $$ BEGIN
                EXECUTE format('GRANT CREATE ON DATABASE %I TO {role}', current_database());
            END $$",
            "DO $$ BEGIN
                EXECUTE format('REVOKE CREATE ON DATABASE %I FROM {role}', current_database());
            END $$",
            &["CREATE ON DATABASE twinbox_test_", "REVOKE CREATE ON DATABASE"],
        ),
        Way::new(
            Kind::Right,
            "ALTER DEFAULT PRIVILEGES IN SCHEMA twinbox GRANT SELECT ON TABLES TO {role}",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA twinbox REVOKE SELECT ON TABLES FROM {role}",
            &["SELECT ON TABLES to come", "IN SCHEMA twinbox REVOKE SELECT ON TABLES FROM {role}"],
        ),
        Way::new(
            Kind::Right,
            "GRANT SELECT ON twinbox.inbox TO {other}; GRANT {other} TO {role}",
            "REVOKE SELECT ON twinbox.inbox FROM {other}; REVOKE {other} FROM {role}",
            &["as a member of {other}: REVOKE SELECT ON \"twinbox\".\"inbox\" FROM {other}"],
        ),
        Way::new(
            Kind::Right,
            "ALTER ROLE {role} NOINHERIT; GRANT SELECT ON twinbox.inbox TO {other}; GRANT {other} TO {role}",
            "REVOKE SELECT ON twinbox.inbox FROM {other}; REVOKE {other} FROM {role};
            ALTER ROLE {role} INHERIT",
            &["as a member of {other}: REVOKE SELECT ON \"twinbox\".\"inbox\" FROM {other}"],
        ),
        Way::new(
            Kind::Right,
            "GRANT SELECT ON twinbox.inbox TO {other};
            GRANT {other} TO {role} WITH ADMIN TRUE, INHERIT FALSE, SET FALSE",
            "REVOKE SELECT ON twinbox.inbox FROM {other}; REVOKE {other} FROM {role}",
            &["as a member of {other}: REVOKE SELECT ON \"twinbox\".\"inbox\" FROM {other}"],
        )
        .since(160_000),
        Way::new(
            Kind::GrantOption,
            "GRANT SELECT ON twinbox.meta TO {other}; GRANT {other} TO {role} WITH ADMIN OPTION",
            "REVOKE SELECT ON twinbox.meta FROM {other}; REVOKE {other} FROM {role}",
            &["may make others members of {other}: REVOKE ADMIN OPTION FOR {other} FROM {role}"],
        ),
        Way::new(
            Kind::GrantOption,
            "GRANT SELECT (message_id) ON twinbox.delayed_messages TO {role} WITH GRANT OPTION",
            "REVOKE GRANT OPTION FOR SELECT (message_id) ON twinbox.delayed_messages FROM {role}",
            &[
                "may grant SELECT (message_id) ON delayed_messages to others: ",
                "FOR SELECT (\"message_id\") ON \"twinbox\".\"delayed_messages\" FROM {role}",
            ],
        ),
        Way::new(
            Kind::GrantOption,
            "GRANT USAGE ON SCHEMA twinbox TO {role} WITH GRANT OPTION",
            "REVOKE GRANT OPTION FOR USAGE ON SCHEMA twinbox FROM {role}",
            &["REVOKE GRANT OPTION FOR USAGE ON SCHEMA twinbox FROM {role}"],
        ),
        Way::new(
            Kind::Ownership,
            "ALTER TABLE twinbox.ticks OWNER TO {role}",
            "ALTER TABLE twinbox.ticks OWNER TO CURRENT_USER",
            &["owns TABLE ticks: ALTER TABLE \"twinbox\".\"ticks\" OWNER TO "],
        ),
        Way::new(
            Kind::Ownership,
            "ALTER FUNCTION twinbox.purge_mark(text) OWNER TO {other}; GRANT {other} TO {role}",
            "ALTER FUNCTION twinbox.purge_mark(text) OWNER TO CURRENT_USER; REVOKE {other} FROM {role}",
            &["as a member of {other}: ALTER ROUTINE twinbox.purge_mark(text) OWNER TO "],
        ),
        Way::new(
            Kind::Ownership,
            "ALTER DOMAIN twinbox.event_key OWNER TO {role}",
            "ALTER DOMAIN twinbox.event_key OWNER TO CURRENT_USER",
            &["ALTER TYPE \"twinbox\".\"event_key\" OWNER TO "],
        ),
        Way::new(
            Kind::Ownership,
            "DO $$ BEGIN
                EXECUTE format('ALTER DATABASE %I OWNER TO {role}', current_database());
            END $$",
            "DO $$ BEGIN
                EXECUTE format('ALTER DATABASE %I OWNER TO %I', current_database(), current_user);
            END $$",
            &["owns DATABASE twinbox_test_"],
        ),
        Way::new(
            Kind::Membership,
            "GRANT pg_read_all_data TO {role}",
            "REVOKE pg_read_all_data FROM {role}",
            &["is a member of pg_read_all_data: REVOKE pg_read_all_data FROM {role}"],
        )
        .since(140_000),
        Way::new(
            Kind::Membership,
            "GRANT pg_write_all_data TO {other}; GRANT {other} TO {role}",
            "REVOKE pg_write_all_data FROM {other}; REVOKE {other} FROM {role}",
            &["is a member of pg_write_all_data: REVOKE {other} FROM {role}"],
        )
        .since(140_000),
        Way::new(
            Kind::Membership,
            "ALTER ROLE {role} NOINHERIT; GRANT pg_execute_server_program TO {role}",
            "REVOKE pg_execute_server_program FROM {role}; ALTER ROLE {role} INHERIT",
            &["REVOKE pg_execute_server_program FROM {role}"],
        ),
        Way::new(
            Kind::Membership,
            "GRANT pg_read_server_files TO {role}",
            "REVOKE pg_read_server_files FROM {role}",
            &["REVOKE pg_read_server_files FROM {role}"],
        ),
        Way::new(
            Kind::Membership,
            "GRANT pg_signal_backend TO {role}",
            "REVOKE pg_signal_backend FROM {role}",
            &["REVOKE pg_signal_backend FROM {role}"],
        ),
        Way::new(
            Kind::Membership,
            "GRANT pg_maintain TO {role}",
            "REVOKE pg_maintain FROM {role}",
            &["REVOKE pg_maintain FROM {role}"],
        )
        .since(170_000),
        Way::new(
            Kind::Attribute,
            "ALTER ROLE {role} CREATEROLE",
            "ALTER ROLE {role} NOCREATEROLE",
            &["CREATEROLE: ALTER ROLE {role} NOCREATEROLE"],
        ),
        Way::new(
            Kind::Attribute,
            "ALTER ROLE {role} CREATEDB REPLICATION BYPASSRLS",
            "ALTER ROLE {role} NOCREATEDB NOREPLICATION NOBYPASSRLS",
            &["ALTER ROLE {role} NOCREATEDB"],
        ),
        Way::new(
            Kind::Attribute,
            "ALTER ROLE {other} SUPERUSER; GRANT {other} TO {role}",
            "REVOKE {other} FROM {role}; ALTER ROLE {other} NOSUPERUSER",
            &["SUPERUSER, as a member of {other}: ALTER ROLE {other} NOSUPERUSER"],
        ),
        Way::new(
            Kind::Function,
            "CREATE FUNCTION twinbox.peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER
                AS 'SELECT count(*) FROM twinbox.outbox'",
            "DROP FUNCTION twinbox.peek()",
            &["ROUTINE twinbox.peek()", "REVOKE EXECUTE ON ROUTINE twinbox.peek() FROM PUBLIC"],
        ),
        Way::new(
            Kind::OutsideSchema,
            "CREATE FUNCTION public.peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER
                AS 'SELECT count(*) FROM twinbox.outbox'",
            "DROP FUNCTION public.peek()",
            &["peek() has the rights of "],
        ),
        Way::new(
            Kind::OutsideSchema,
            "GRANT USAGE ON SCHEMA twinbox TO {other}; GRANT SELECT ON twinbox.outbox TO {other};
            CREATE FUNCTION public.peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER
                AS 'SELECT count(*) FROM twinbox.outbox';
            ALTER FUNCTION public.peek() OWNER TO {other}",
            "DROP FUNCTION public.peek(); REVOKE SELECT ON twinbox.outbox FROM {other};
            REVOKE USAGE ON SCHEMA twinbox FROM {other}",
            &["peek() has the rights of {other}: REVOKE EXECUTE ON ROUTINE ", "peek() FROM PUBLIC"],
        ),
        Way::new(
            Kind::OutsideSchema,
            "CREATE FUNCTION public.peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER
                AS 'SELECT count(*) FROM twinbox.outbox';
            REVOKE EXECUTE ON FUNCTION public.peek() FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION public.peek() TO {other}; GRANT {other} TO {role}",
            "DROP FUNCTION public.peek(); REVOKE {other} FROM {role}",
            &["peek() has the rights of ", "peek() FROM {other}"],
        ),
        Way::new(
            Kind::OutsideSchema,
            "CREATE VIEW public.peeked AS SELECT payload FROM twinbox.outbox;
            GRANT SELECT ON public.peeked TO {role}",
            "DROP VIEW public.peeked",
            &["VIEW ", "peeked has the rights of ", "REVOKE ALL ON ", "peeked FROM {role}"],
        ),
        Way::new(
            Kind::Setting,
            "ALTER ROLE {role} SET session_replication_role = replica",
            "ALTER ROLE {role} RESET session_replication_role",
            &["session_replication_role=replica", "ALTER ROLE {role} RESET session_replication_role"],
        ),
        Way::new(
            Kind::Setting,
            "GRANT SET ON PARAMETER session_replication_role TO {role}",
            "REVOKE SET ON PARAMETER session_replication_role FROM {role}",
            &["REVOKE SET ON PARAMETER session_replication_role FROM {role}"],
        )
        .since(150_000),
        Way::new(
            Kind::Right,
            "ALTER SCHEMA twinbox OWNER TO {role}",
            "ALTER SCHEMA twinbox OWNER TO CURRENT_USER",
            &["everything: it owns the tables, or the server"],
        ),
    ];
}
