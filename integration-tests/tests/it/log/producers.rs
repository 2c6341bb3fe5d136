//! Producers that write rows: the contract of the outbox table, for any language.
use crate::support::{
    cases::cases,
    database::owner_of,
    databases::Postgres,
    log::{Names, draft, now, open, publish, run, settle_until, take},
};
use twinbox::Store;

async fn a_row_of_plain_sql_is_delivered<DB: Names>(store: &Store<DB>) {
    let insert = format!(
        "INSERT INTO {} (type, key, payload) VALUES ('orders.placed', 'o-1', {})",
        DB::OUTBOX,
        DB::bytes("{\"n\":1}")
    );
    let before = now(store).await;
    run(store, &insert).await.unwrap();
    run(store, &insert).await.unwrap();
    let mut reader = open(store, "d").await;
    let first = take(&mut reader, 1).await.remove(0);
    reader.settle(first.ticket);
    let (first, second) = (first.message, take(&mut reader, 1).await.remove(0).message);
    assert_eq!((first.event_type.as_str(), first.version), ("orders.placed", 1));
    assert_eq!((first.key.as_deref(), &first.payload[..]), (Some("o-1"), &b"{\"n\":1}"[..]));
    assert_eq!(first.source, store.service());
    assert_eq!(first.content_type, "application/json");
    assert!(!first.id.is_empty() && first.id != second.id);
    assert!((before - 5_000..=now(store).await).contains(&first.time.as_micros()), "{}", first.time);
    assert!(first.sequence.is_some() && first.sequence < second.sequence);
    assert_eq!((first.subject, first.headers), (None, vec![]));
    assert_eq!(first.correlation_id, Some(first.id), "it begins an operation");
}

async fn what_breaks_a_bound_is_refused_by_the_database<DB: Names>(store: &Store<DB>) {
    let long = |n| format!("'{}'", "x".repeat(n));
    let row = |column: &str, value: String| {
        let (mut names, mut values) = (vec!["type", "payload"], vec!["'a'".to_owned(), DB::bytes("{}")]);
        match names.iter().position(|name| *name == column) {
            Some(n) => values[n] = value,
            None => {
                names.push(column);
                values.push(value);
            }
        }
        format!("INSERT INTO {} ({}) VALUES ({})", DB::OUTBOX, names.join(", "), values.join(", "))
    };
    let good = [
        ("type", "'orders.placed-2_x'".to_owned()),
        ("type", long(128)),
        ("headers", "'{\"region\":\"eu\"}'".to_owned()),
        ("key", long(255)),
        ("source", "'elsewhere'".to_owned()),
        ("version", "4294967295".to_owned()),
        ("payload", DB::bytes(&"x".repeat(983_040))),
    ];
    let taken = good.len();
    for (column, value) in good {
        let head: String = value.chars().take(40).collect();
        run(store, &row(column, value)).await.unwrap_or_else(|e| panic!("{column} = {head}: {e}"));
    }
    let mut bad = vec![
        ("type", long(129)),
        ("headers", "'[1]'".to_owned()),
        ("headers", "'not json'".to_owned()),
        ("headers", format!("'{{\"x\":\"{}\"}}'", "x".repeat(65_536))),
        ("payload", DB::bytes(&"x".repeat(983_041))),
        ("payload", "NULL".to_owned()),
        ("id", "''".to_owned()),
        ("id", long(256)),
        ("source", "''".to_owned()),
        ("key", long(256)),
        ("subject", long(1025)),
        ("version", "0".to_owned()),
        ("version", "4294967296".to_owned()),
        ("correlation_id", long(256)),
        ("causation_id", long(256)),
        ("traceparent", long(56)),
        ("content_type", long(256)),
        // Bytes, not characters.
        ("key", format!("'{}'", "é".repeat(128))),
    ];
    for event_type in ["", ".", "a..b", ".a", "a.", "*", "a.>", "a b", "é", "a;b", "a\n"] {
        bad.push(("type", format!("'{event_type}'")));
    }
    for (column, value) in bad {
        let head: String = value.chars().take(40).collect();
        assert!(run(store, &row(column, value)).await.is_err(), "{column} = {head}… was taken");
    }
    let mut reader = open(store, "d").await;
    publish(store, None, &["end"]).await;
    assert_eq!(settle_until(&mut reader, "end").await.len(), taken + 1);
}

async fn a_rolled_back_message_is_never_delivered<DB: Names>(store: &Store<DB>) {
    let mut reader = open(store, "d").await;
    publish(store, None, &["a"]).await;
    for round in 0..10 {
        let mut tx = store.begin().await.unwrap();
        store.outbox().publish_draft(&mut tx, draft(None, "ghost")).await.unwrap();
        match round % 2 {
            0 => tx.rollback().await.unwrap(),
            _ => drop(tx),
        }
    }
    publish(store, None, &["b"]).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["a", "b"]);
}

/// A row with a transaction id of another transaction would be delivered years later, or never. The same
/// goes for a position that no sequence gave.
#[cfg(feature = "postgres")]
async fn an_invented_txid_is_refused(store: &Store<Postgres>) {
    for (column, value, code) in [
        ("txid", "'1'::xid8", "TB002"),
        ("txid", "'9999999999'::xid8", "TB002"),
        ("txid", "NULL", "TB002"),
        ("position", "-1", "428C9"),
    ] {
        let sql =
            format!("INSERT INTO twinbox.outbox (type, payload, {column}) VALUES ('a', '{{}}', {value})");
        let refused = run(store, &sql).await.unwrap_err();
        let found = refused.as_database_error().and_then(|e| e.code().map(|code| code.into_owned()));
        assert_eq!(found.as_deref(), Some(code), "{column} = {value}: {refused}");
    }
    // A position that every reader begins behind would never be delivered, and nobody would be told.
    for position in ["0", "-1", "-9223372036854775808"] {
        let sql = format!(
            "INSERT INTO twinbox.outbox (position, type, payload) OVERRIDING SYSTEM VALUE VALUES \
             ({position}, 'a', '')"
        );
        let refused = run(store, &sql).await.unwrap_err();
        let found = refused.as_database_error().and_then(|e| e.code().map(|code| code.into_owned()));
        assert_eq!(found.as_deref(), Some("TB002"), "{position}: {refused}");
        let refused =
            copy(store, "position, type, payload", &format!("{position}\ta\tb\n")).await.unwrap_err();
        let found = refused.as_database_error().and_then(|e| e.code().map(|code| code.into_owned()));
        assert_eq!(found.as_deref(), Some("TB002"), "{position}: {refused}");
    }
    // Its own is what the default would have written.
    let own = "INSERT INTO twinbox.outbox (type, payload, txid) VALUES ('a', 'own', pg_current_xact_id())";
    run(store, own).await.unwrap();
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "own").await, ["own"]);
}

/// Writes rows as `COPY` does.
#[cfg(feature = "postgres")]
async fn copy(store: &Store<Postgres>, columns: &str, rows: &str) -> Result<u64, sqlx::Error> {
    let mut conn = owner_of(store).pool().acquire().await.unwrap();
    let sql = format!("COPY twinbox.outbox ({columns}) FROM STDIN");
    let mut copying = conn.copy_in_raw(&sql).await?;
    copying.send(rows.as_bytes()).await?;
    copying.finish().await
}

async fn a_position_that_a_reader_may_have_passed_is_refused(store: &Store<sqlx::Sqlite>) {
    let at = |position: &str| {
        format!("INSERT INTO twinbox_outbox (position, type, payload) VALUES ({position}, 'a', x'00')")
    };
    for position in ["0", "-1", "-9223372036854775808"] {
        let refused = run(store, &at(position)).await.unwrap_err();
        assert!(refused.to_string().contains("CHECK constraint failed: position > 0"), "{refused}");
    }
    publish(store, None, &["first", "second", "third"]).await;
    run(store, "DELETE FROM twinbox_outbox WHERE position = 2").await.unwrap();
    // Several rows of one statement, of which one has a position.
    for positions in ["2", "NULL, 'a', x'00'), (2"].map(at) {
        let refused = run(store, &positions).await.unwrap_err();
        assert!(refused.to_string().contains("leave position out of the INSERT"), "{refused}");
    }
    let mut tx = store.begin().await.unwrap();
    let drafts = ["fourth", "fifth"].map(|text| draft(None, text)).to_vec();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "fifth").await, ["first", "third", "fourth", "fifth"]);
}

/// It would be parked under the part before the NUL, and pass for another one.
async fn a_key_with_a_nul_is_refused(store: &Store<sqlx::Sqlite>) {
    let insert = "INSERT INTO twinbox_outbox (type, key, payload) VALUES ('a', 'k' || char(0) || 'l', x'00')";
    let refused = run(store, insert).await.unwrap_err();
    assert!(refused.to_string().contains("CHECK constraint failed"), "{refused}");
}

cases! {
    with a store:
    all: [
        a_row_of_plain_sql_is_delivered,
        what_breaks_a_bound_is_refused_by_the_database,
        a_rolled_back_message_is_never_delivered,
    ]
    postgres: [
        an_invented_txid_is_refused,
    ]
    sqlite: [
        a_key_with_a_nul_is_refused,
        a_position_that_a_reader_may_have_passed_is_refused,
    ]
}
