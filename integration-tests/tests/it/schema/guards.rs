//! What turns the rules of the tables off is found, with what to change.
use crate::support::{
    cases::cases,
    stores::{TestDb, World},
};
use sqlx::{AssertSqlSafe, MySql, Postgres, Sqlite};
use twinbox::ops::{DeviationKind as Kind, Ops};

/// A change of the tables.
struct Change {
    make: &'static str,
    undo: &'static str,
    kind: Kind,
    /// Words of what is found meanwhile.
    words: &'static str,
}

async fn each_is_found<DB: TestDb>(changes: &[Change]) {
    let world = World::<DB>::new().await;
    let look = async || Ops::new(world.owner()).altered_tables().await.unwrap();
    for &Change { make, undo, kind, words } in changes {
        let before = look().await;
        assert!(before.is_empty(), "before {make}: {before:?}");
        world.execute(make).await;
        let found = look().await;
        world.execute(undo).await;
        let is_found = found.iter().any(|one| one.kind == kind && one.to_string().contains(words));
        assert!(is_found, "{make}: {words:?} is not in {found:#?}");
    }
    let after = look().await;
    assert!(after.is_empty(), "{after:?}");
}

async fn a_table_of_postgres_that_somebody_has_changed_is_found() {
    each_is_found::<Postgres>(&[
        Change {
            make: "ALTER TABLE twinbox.outbox DISABLE TRIGGER refuse_position",
            undo: "ALTER TABLE twinbox.outbox ENABLE TRIGGER refuse_position",
            kind: Kind::Trigger,
            words: "is disabled: ALTER TABLE \"twinbox\".\"outbox\" ENABLE TRIGGER \"refuse_position\"",
        },
        Change {
            make: "ALTER TABLE twinbox.outbox ENABLE REPLICA TRIGGER refuse_content",
            undo: "ALTER TABLE twinbox.outbox ENABLE ALWAYS TRIGGER refuse_content",
            kind: Kind::Trigger,
            words: "is disabled: ALTER TABLE \"twinbox\".\"outbox\" ENABLE TRIGGER \"refuse_content\"",
        },
        Change {
            make: "DROP TRIGGER refuse_commit ON twinbox.inbox",
            undo: "CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT ON twinbox.inbox
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION twinbox.refuse_commit()",
            kind: Kind::Trigger,
            words: "refuse_commit of inbox is missing",
        },
        Change {
            make: "CREATE FUNCTION public.spy() RETURNS trigger LANGUAGE plpgsql
                    AS 'BEGIN RETURN NEW; END';
                CREATE TRIGGER spy BEFORE INSERT ON twinbox.outbox
                    FOR EACH ROW EXECUTE FUNCTION public.spy()",
            undo: "DROP TRIGGER spy ON twinbox.outbox; DROP FUNCTION public.spy()",
            kind: Kind::UnknownTrigger,
            words: "DROP TRIGGER \"spy\" ON \"twinbox\".\"outbox\"",
        },
        // A function of the schema, on a table where it is not known.
        Change {
            make: "CREATE TRIGGER refuse_position BEFORE INSERT ON twinbox.ticks
                    FOR EACH ROW EXECUTE FUNCTION twinbox.refuse_position()",
            undo: "DROP TRIGGER refuse_position ON twinbox.ticks",
            kind: Kind::UnknownTrigger,
            words: "refuse_position runs on changes of ticks",
        },
        Change {
            make: "CREATE FUNCTION public.spy() RETURNS trigger LANGUAGE plpgsql
                    AS 'BEGIN RETURN NEW; END';
                DROP TRIGGER refuse_audit_count ON twinbox.audit;
                CREATE TRIGGER refuse_audit_count BEFORE UPDATE OF count ON twinbox.audit
                    FOR EACH ROW EXECUTE FUNCTION public.spy()",
            undo: "DROP TRIGGER refuse_audit_count ON twinbox.audit; DROP FUNCTION public.spy();
                CREATE TRIGGER refuse_audit_count BEFORE UPDATE OF count ON twinbox.audit
                    FOR EACH ROW EXECUTE FUNCTION twinbox.refuse_audit_count()",
            kind: Kind::UnknownTrigger,
            words: "refuse_audit_count runs on changes of audit",
        },
        Change {
            make: "CREATE RULE swallow AS ON INSERT TO twinbox.ticks DO INSTEAD NOTHING",
            undo: "DROP RULE swallow ON twinbox.ticks",
            kind: Kind::Rule,
            words: "DROP RULE \"swallow\" ON \"twinbox\".\"ticks\"",
        },
        Change {
            make: "ALTER TABLE twinbox.inbox ENABLE ROW LEVEL SECURITY",
            undo: "ALTER TABLE twinbox.inbox DISABLE ROW LEVEL SECURITY",
            kind: Kind::RowSecurity,
            words: "DISABLE ROW LEVEL SECURITY",
        },
        Change {
            make: "CREATE POLICY mine ON twinbox.inbox USING (true)",
            undo: "DROP POLICY mine ON twinbox.inbox",
            kind: Kind::RowSecurity,
            words: "DROP POLICY \"mine\" ON \"twinbox\".\"inbox\"",
        },
    ])
    .await;
}

async fn a_table_of_mysql_that_somebody_has_changed_is_found() {
    each_is_found::<MySql>(&[
        Change {
            make: "DROP TRIGGER twinbox_unchecked_clients",
            undo: "CREATE TRIGGER twinbox_unchecked_clients BEFORE INSERT ON twinbox_client_keys
                FOR EACH ROW SET @made = 1",
            kind: Kind::Trigger,
            words: "twinbox_unchecked_clients of twinbox_client_keys is missing",
        },
        Change {
            make: "CREATE TRIGGER spy BEFORE INSERT ON twinbox_ticks FOR EACH ROW SET @made = 1",
            undo: "DROP TRIGGER spy",
            kind: Kind::UnknownTrigger,
            words: "spy runs on changes of twinbox_ticks: DROP TRIGGER `spy`",
        },
        Change {
            make: "CREATE TRIGGER twinbox_spy BEFORE INSERT ON twinbox_ticks FOR EACH ROW SET @made = 1",
            undo: "DROP TRIGGER twinbox_spy",
            kind: Kind::UnknownTrigger,
            words: "twinbox_spy runs on changes of twinbox_ticks",
        },
    ])
    .await;
}

async fn a_table_of_sqlite_that_somebody_has_changed_is_found() {
    each_is_found::<Sqlite>(&[
        Change {
            make: "DROP TRIGGER twinbox_refuse_position",
            // A connection learns by reading that another one has dropped it.
            undo: "SELECT position FROM twinbox_outbox LIMIT 1;
                CREATE TRIGGER twinbox_refuse_position AFTER INSERT ON twinbox_outbox BEGIN SELECT 1; END",
            kind: Kind::Trigger,
            words: "twinbox_refuse_position of twinbox_outbox is missing",
        },
        Change {
            make: "CREATE TRIGGER spy AFTER INSERT ON twinbox_outbox BEGIN SELECT 1; END",
            undo: "DROP TRIGGER spy",
            kind: Kind::UnknownTrigger,
            words: "DROP TRIGGER \"spy\"",
        },
        Change {
            make: "CREATE TRIGGER twinbox_spy AFTER INSERT ON twinbox_outbox BEGIN SELECT 1; END",
            undo: "DROP TRIGGER twinbox_spy",
            kind: Kind::UnknownTrigger,
            words: "twinbox_spy runs on changes of twinbox_outbox",
        },
    ])
    .await;
}

/// The owner of the tables runs the statement of a finding, and another role chose the name in it.
async fn a_statement_removes_what_it_names_and_nothing_else<DB: TestDb>(make: &'static str, words: &str) {
    let world = World::<DB>::new().await;
    world.execute(make).await;
    let found = Ops::new(world.owner()).altered_tables().await.unwrap();
    let [one] = &found[..] else { panic!("one trigger: {found:?}") };
    assert_eq!((one.kind, one.remedy.as_str()), (Kind::UnknownTrigger, words));
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(one.remedy.clone())).execute(&mut *conn).await.unwrap();
    drop(conn);
    assert_eq!(world.rows("inbox").await, 0, "the table is there");
    let after = Ops::new(world.owner()).altered_tables().await.unwrap();
    assert!(after.is_empty(), "{after:?}");
}

async fn no_name_of_a_trigger_of_postgres_is_a_statement() {
    a_statement_removes_what_it_names_and_nothing_else::<Postgres>(
        r#"CREATE TRIGGER "Spy"" ON twinbox.outbox; DROP TABLE twinbox.inbox; --"
            BEFORE INSERT ON twinbox.outbox FOR EACH ROW EXECUTE FUNCTION twinbox.refuse_position()"#,
        r#"DROP TRIGGER "Spy"" ON twinbox.outbox; DROP TABLE twinbox.inbox; --" ON "twinbox"."outbox""#,
    )
    .await;
}

async fn no_name_of_a_trigger_of_mysql_is_a_statement() {
    a_statement_removes_what_it_names_and_nothing_else::<MySql>(
        "CREATE TRIGGER `Spy``; DROP TABLE twinbox_inbox; -- x` BEFORE INSERT ON twinbox_outbox
            FOR EACH ROW SET @made = 1",
        "DROP TRIGGER `Spy``; DROP TABLE twinbox_inbox; -- x`",
    )
    .await;
}

async fn no_name_of_a_trigger_of_sqlite_is_a_statement() {
    a_statement_removes_what_it_names_and_nothing_else::<Sqlite>(
        r#"CREATE TRIGGER "Spy""; DROP TABLE twinbox_inbox; --" AFTER INSERT ON twinbox_outbox
            BEGIN SELECT 1; END"#,
        r#"DROP TRIGGER "Spy""; DROP TABLE twinbox_inbox; --""#,
    )
    .await;
}

cases! {
    postgres: [
        a_table_of_postgres_that_somebody_has_changed_is_found,
        no_name_of_a_trigger_of_postgres_is_a_statement,
    ]
    mysql: [
        a_table_of_mysql_that_somebody_has_changed_is_found,
        no_name_of_a_trigger_of_mysql_is_a_statement,
    ]
    sqlite: [
        a_table_of_sqlite_that_somebody_has_changed_is_found,
        no_name_of_a_trigger_of_sqlite_is_a_statement,
    ]
}
