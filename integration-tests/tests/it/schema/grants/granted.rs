//! The differences between the databases that have roles.
use crate::support::{
    database::SERVICE,
    roles::{MYSQL_PASSWORD, Roles},
    stores::{TestDb, World},
};
use sqlx::{MySql, Postgres, mysql::MySqlPoolOptions, postgres::PgPoolOptions};
use twinbox::Store;

pub(super) trait Granted: TestDb {
    /// Publishes in any language.
    const PUBLISH: &[&str];
    // The statements that each role is refused.
    const PRODUCER: &[&str];
    const RUNTIME: &[&str];
    const RUNTIME_REDACTS: &[&str];
    const KEEPER: &[&str];
    const OPERATOR: &[&str];
    const REDACTOR: &[&str];
    /// The tables that the runtime may not purge.
    const NOT_PURGED: &[&str];

    /// Lists tables and columns of the store.
    const COLUMNS: &str;
    /// Around the name of a column.
    const QUOTE: char;
    /// One message with the key 7 in each table that keeps some.
    const STORED_MESSAGES: [&str; 4];
    const FORGED_HEADERS: &str;
    /// What no program could read, from a session that tries to write it all the same.
    const UNREADABLE: &[&str];
    /// An entry of the audit, from a session that has set its time.
    const BACKDATED: &str;

    /// Makes the documented roles.
    async fn create(world: &World<Self>, table: &str) -> Roles;
    async fn drop(roles: Roles, world: &World<Self>);
    /// Opens the store as a role.
    async fn store_of(world: &World<Self>, role: &str) -> Store<Self>;
}

impl Granted for Postgres {
    const PUBLISH: &[&str] = &[
        "SELECT twinbox.publish('a', 'k', '{}')",
        "SELECT twinbox.publish_bytes('a', 'k', '', 'text/plain')",
        "INSERT INTO twinbox.outbox (type, payload) VALUES ('a', '\\x00')",
    ];
    const PRODUCER: &[&str] = &[
        "SELECT * FROM twinbox.destination_secrets",
        "SELECT * FROM twinbox.outbox",
        "SELECT * FROM twinbox.inbox",
        "SELECT * FROM twinbox.dead_letters",
        "SELECT * FROM twinbox.cursors",
        "SELECT * FROM twinbox.delayed_messages",
        "INSERT INTO twinbox.outbox (position, type, payload) OVERRIDING SYSTEM VALUE VALUES (5, 'a', '')",
        "INSERT INTO twinbox.outbox (txid, type, payload) VALUES (pg_current_xact_id(), 'a', '')",
        "COPY twinbox.outbox (position, type, payload) FROM STDIN",
        "COPY twinbox.outbox FROM STDIN",
        "INSERT INTO twinbox.outbox (source, type, payload) VALUES ('bank', 'a', '')",
        "INSERT INTO twinbox.delayed_messages (insert_order, type, payload, not_before) OVERRIDING SYSTEM \
         VALUE VALUES (5, \
         'a', '', now())",
        "UPDATE twinbox.delayed_messages SET payload = ''",
        "UPDATE twinbox.outbox SET payload = ''",
        "DELETE FROM twinbox.outbox",
        "UPDATE twinbox.meta SET service = 'mine'",
        "DROP TABLE twinbox.outbox",
    ];
    const RUNTIME: &[&str] = &[
        "DELETE FROM twinbox.outbox",
        "UPDATE twinbox.outbox SET payload = ''",
        "DELETE FROM twinbox.purge_marks",
        "UPDATE twinbox.meta SET service = 'mine'",
        "UPDATE twinbox.sentinel SET txid = '1'",
        "CREATE TABLE twinbox.mine ()",
        "ALTER TABLE twinbox.inbox DISABLE TRIGGER refuse_commit",
        "DROP TABLE twinbox.inbox",
    ];
    const RUNTIME_REDACTS: &[&str] =
        &["UPDATE twinbox.dead_letters SET payload = ''", "UPDATE twinbox.delayed_messages SET payload = ''"];
    const KEEPER: &[&str] = &[
        "SELECT * FROM twinbox.destination_secrets",
        "DELETE FROM twinbox.inbox",
        "UPDATE twinbox.outbox SET payload = ''",
        "SELECT * FROM effects",
        "SELECT key FROM twinbox.idempotency_keys",
        "SELECT response_body FROM twinbox.idempotency_keys",
        "SELECT key FROM twinbox.client_keys",
        "SELECT payload_hash FROM twinbox.webhook_receipts",
        "UPDATE twinbox.idempotency_keys SET expires_at = now()",
    ];
    const OPERATOR: &[&str] = &[
        "SELECT * FROM twinbox.destination_secrets",
        "UPDATE twinbox.audit SET operator = 'eve'",
        "DELETE FROM twinbox.audit",
        "DELETE FROM twinbox.outbox",
        "UPDATE twinbox.outbox SET payload = ''",
        "DELETE FROM twinbox.inbox",
        "UPDATE twinbox.dead_letters SET payload = ''",
        "UPDATE twinbox.replays SET selection = '{}'",
        "DELETE FROM twinbox.replays",
        "SELECT * FROM effects",
    ];
    const REDACTOR: &[&str] = &[
        "SELECT * FROM twinbox.destination_secrets",
        "SELECT payload FROM twinbox.outbox",
        "SELECT target FROM twinbox.audit",
        "SELECT headers FROM twinbox.delayed_messages",
        "SELECT * FROM twinbox.dead_letters",
        "UPDATE twinbox.outbox SET key = 'mine'",
        "UPDATE twinbox.delayed_messages SET not_before = now()",
        "UPDATE twinbox.dead_letters SET consumer = 'mine'",
        "DELETE FROM twinbox.outbox",
        "DELETE FROM twinbox.dead_letters",
        "INSERT INTO twinbox.outbox (type, payload) VALUES ('a', '')",
        "SELECT twinbox.publish('a', 'k', '{}')",
        "SELECT twinbox.publish_bytes('a', 'k', '', 'text/plain')",
        "SELECT * FROM twinbox.inbox",
        "SELECT * FROM effects",
        "SELECT key FROM twinbox.idempotency_keys",
        "SELECT response_body FROM twinbox.idempotency_keys",
        "UPDATE twinbox.idempotency_keys SET status = 'pending'",
        "DELETE FROM twinbox.idempotency_keys",
    ];
    const NOT_PURGED: &[&str] = &["outbox", "webhook_receipts", "side_effects", "client_keys"];
    const COLUMNS: &str = "
        SELECT c.table_name::text, c.column_name::text
        FROM information_schema.columns c
        JOIN information_schema.tables t USING (table_schema, table_name)
        WHERE c.table_schema = 'twinbox' AND t.table_type = 'BASE TABLE'";
    const QUOTE: char = '"';
    const STORED_MESSAGES: [&str; 4] = [
        "INSERT INTO twinbox.outbox (type, key, payload) VALUES ('a', '7', 'x')",
        "INSERT INTO twinbox.delayed_messages (type, key, payload, not_before) VALUES ('a', '7', 'x', now())",
        "INSERT INTO twinbox.parked_deliveries (consumer, partition, next_attempt_at, message_id, event_id,
             source, type, version, key, time, content_type, payload)
         VALUES ('c', 0, now(), gen_random_uuid(), 'e', 's', 'a', 1, '7', now(), 't', 'x')",
        "INSERT INTO twinbox.dead_letters (consumer, message_id, reason, error, fingerprint, attempts,
             event_id, source, type, version, key, time, content_type, payload)
         VALUES ('c', gen_random_uuid(), 'r', 'e', 'f', 1, 'e', 's', 'a', 1, '7', now(), 't', 'x')",
    ];
    const FORGED_HEADERS: &str =
        r#"payload = '', headers = '{"twinbox-redacted":"forged","twinbox-redacted":"true"}'"#;
    const UNREADABLE: &[&str] = &["INSERT INTO twinbox.outbox (type, payload) VALUES ('', '')"];
    const BACKDATED: &str = "
        INSERT INTO twinbox.audit (operator, command, target) VALUES ('a', 'backdated', 'c')";

    async fn create(world: &World<Self>, table: &str) -> Roles {
        Roles::create(world, table).await
    }

    async fn drop(roles: Roles, world: &World<Self>) {
        roles.drop(world).await;
    }

    async fn store_of(world: &World<Self>, role: &str) -> Store<Self> {
        let options = (*world.pool().connect_options()).clone().username(role);
        Store::new(PgPoolOptions::new().connect_with(options).await.unwrap(), SERVICE).unwrap()
    }
}

impl Granted for MySql {
    const PUBLISH: &[&str] = &[
        "CALL twinbox_publish('a', 'k', '{}', NULL, NULL)",
        "CALL twinbox_publish_bytes('a', 'k', '', 'text/plain', NULL, NULL)",
        "INSERT INTO twinbox_outbox (type, payload) VALUES ('a', x'00')",
    ];
    const PRODUCER: &[&str] = &[
        "SELECT * FROM twinbox_destination_secrets",
        "SELECT * FROM twinbox_outbox",
        "SELECT * FROM twinbox_inbox",
        "SELECT * FROM twinbox_dead_letters",
        "SELECT * FROM twinbox_cursors",
        "SELECT * FROM twinbox_delayed_messages",
        "INSERT INTO twinbox_outbox (position, type, payload) VALUES (5, 'a', '')",
        "INSERT INTO twinbox_outbox (source, type, payload) VALUES ('bank', 'a', '')",
        "INSERT INTO twinbox_holes (first, last, opened_by, probe_at) VALUES (1, 1, 1, '2000-01-01')",
        "UPDATE twinbox_delayed_messages SET payload = ''",
        "UPDATE twinbox_outbox SET payload = ''",
        "DELETE FROM twinbox_outbox",
        "TRUNCATE twinbox_outbox",
        "UPDATE twinbox_meta SET service = 'mine'",
        "DROP TABLE twinbox_outbox",
    ];
    const RUNTIME: &[&str] = &[
        "DELETE FROM twinbox_outbox",
        "TRUNCATE twinbox_outbox",
        "UPDATE twinbox_outbox SET payload = ''",
        "DELETE FROM twinbox_purge_marks",
        "UPDATE twinbox_meta SET service = 'mine'",
        "CREATE TABLE twinbox_mine (n INT)",
        "DROP TRIGGER twinbox_refuse_position",
        "DROP TABLE twinbox_inbox",
    ];
    const RUNTIME_REDACTS: &[&str] =
        &["UPDATE twinbox_dead_letters SET payload = ''", "UPDATE twinbox_delayed_messages SET payload = ''"];
    const KEEPER: &[&str] = &[
        "SELECT * FROM twinbox_destination_secrets",
        "DELETE FROM twinbox_inbox",
        "UPDATE twinbox_outbox SET payload = ''",
        "SELECT * FROM effects",
        "SELECT key FROM twinbox_idempotency_keys",
        "SELECT response_body FROM twinbox_idempotency_keys",
        "SELECT key FROM twinbox_client_keys",
        "SELECT payload_hash FROM twinbox_webhook_receipts",
        "UPDATE twinbox_idempotency_keys SET expires_at = UTC_TIMESTAMP(6)",
    ];
    const OPERATOR: &[&str] = &[
        "SELECT * FROM twinbox_destination_secrets",
        "UPDATE twinbox_audit SET operator = 'eve'",
        "DELETE FROM twinbox_audit",
        "DELETE FROM twinbox_outbox",
        "UPDATE twinbox_outbox SET payload = ''",
        "DELETE FROM twinbox_inbox",
        "UPDATE twinbox_dead_letters SET payload = ''",
        "UPDATE twinbox_replays SET selection = '{}'",
        "DELETE FROM twinbox_replays",
        "SELECT * FROM effects",
    ];
    const REDACTOR: &[&str] = &[
        "SELECT * FROM twinbox_destination_secrets",
        "SELECT payload FROM twinbox_outbox",
        "SELECT target FROM twinbox_audit",
        "SELECT headers FROM twinbox_delayed_messages",
        "SELECT * FROM twinbox_dead_letters",
        "UPDATE twinbox_outbox SET type = 'mine'",
        "UPDATE twinbox_delayed_messages SET not_before = UTC_TIMESTAMP(6)",
        "UPDATE twinbox_dead_letters SET consumer = 'mine'",
        "DELETE FROM twinbox_outbox",
        "DELETE FROM twinbox_dead_letters",
        "INSERT INTO twinbox_outbox (type, payload) VALUES ('a', '')",
        "CALL twinbox_publish('a', 'k', '{}', NULL, NULL)",
        "SELECT * FROM twinbox_inbox",
        "SELECT * FROM effects",
        "SELECT key FROM twinbox_idempotency_keys",
        "SELECT response_body FROM twinbox_idempotency_keys",
        "UPDATE twinbox_idempotency_keys SET status = 'pending'",
        "DELETE FROM twinbox_idempotency_keys",
    ];
    const NOT_PURGED: &[&str] = &["outbox", "side_effects", "client_keys"];
    const COLUMNS: &str = "
        SELECT CAST(SUBSTRING(c.table_name, 9) AS CHAR), CAST(c.column_name AS CHAR)
        FROM information_schema.columns c
        JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
        WHERE c.table_schema = DATABASE() AND c.table_name LIKE 'twinbox%' AND t.table_type = 'BASE TABLE'";
    const QUOTE: char = '`';
    const STORED_MESSAGES: [&str; 4] = [
        "INSERT INTO twinbox_outbox (type, key, payload) VALUES ('a', '7', 'x')",
        "INSERT INTO twinbox_delayed_messages (type, key, payload, not_before)
         VALUES ('a', '7', 'x', UTC_TIMESTAMP(6))",
        "INSERT INTO twinbox_parked_deliveries (consumer, `partition`, next_attempt_at, message_id, event_id,
             source, type, version, key, time, content_type, payload)
         VALUES ('c', 0, UTC_TIMESTAMP(6), '0123456789abcdef', 'e', 's', 'a', 1, '7', UTC_TIMESTAMP(6), 't',
             'x')",
        "INSERT INTO twinbox_dead_letters (consumer, message_id, reason, error, fingerprint, attempts,
             event_id, source, type, version, key, time, content_type, payload)
         VALUES ('c', '0123456789abcdef', 'r', 'e', 'f', 1, 'e', 's', 'a', 1, '7', UTC_TIMESTAMP(6), 't',
             'x')",
    ];
    const FORGED_HEADERS: &str = r#"payload = '', headers = '{"twinbox-redacted":"true "}'"#;
    const UNREADABLE: &[&str] = &[
        "SET sql_mode = '', check_constraint_checks = 0;
        INSERT INTO twinbox_outbox (type, payload, time) VALUES ('a', 'x', '0000-00-00')",
        "SET sql_mode = '', check_constraint_checks = 0;
        INSERT INTO twinbox_outbox (type, payload) VALUES ('', 'x')",
        "SET sql_mode = '', check_constraint_checks = 0;
        INSERT INTO twinbox_delayed_messages (type, payload, not_before) VALUES ('a', 'x', '0000-00-00')",
    ];
    const BACKDATED: &str = "
        SET timestamp = 946684800;
        INSERT INTO twinbox_audit (operator, command, target) VALUES ('a', 'backdated', 'c')";

    async fn create(world: &World<Self>, table: &str) -> Roles {
        Roles::create_on_mysql(world, table).await
    }

    async fn drop(roles: Roles, world: &World<Self>) {
        roles.drop_on_mysql(world).await;
    }

    async fn store_of(world: &World<Self>, role: &str) -> Store<Self> {
        let options = (*world.pool().connect_options()).clone().username(role).password(MYSQL_PASSWORD);
        Store::new(MySqlPoolOptions::new().connect_with(options).await.unwrap(), SERVICE).unwrap()
    }
}
