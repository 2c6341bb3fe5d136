//! What breaks a bound is refused before anything is written, and names what to change.
use crate::support::{
    cases::cases,
    stores::{TestDb, World, sql},
};
use twinbox::{Draft, ErrorKind, limits};

fn draft() -> Draft {
    Draft::raw("orders.placed", 1, &b"{}"[..])
}

fn headers(count: usize, bytes: usize) -> Draft {
    (0..count).fold(draft(), |d, n| d.header(format!("h{n:03}"), "v".repeat(bytes)))
}

/// Drafts at their bound, each with the same draft one beyond it and what the refusal says.
fn bounds() -> Vec<(Draft, Draft, &'static str)> {
    let each = |max: usize, make: fn(String) -> Draft, says| {
        (make("a".repeat(max)), make("a".repeat(max + 1)), says)
    };
    vec![
        each(limits::TYPE_BYTES_MAX, |s| Draft::raw(s, 1, &b""[..]), "`type` has 129 bytes"),
        each(limits::ID_BYTES_MAX, |s| draft().id(s), "`id` has 256 bytes"),
        each(limits::KEY_BYTES_MAX, |s| draft().key(s), "`key` has 256 bytes"),
        each(limits::SUBJECT_BYTES_MAX, |s| draft().subject(s), "`subject` has 1025 bytes"),
        each(limits::CORRELATION_BYTES_MAX, |s| draft().correlation_id(s), "`correlation_id` has 256 bytes"),
        each(limits::CORRELATION_BYTES_MAX, |s| draft().causation_id(s), "`causation_id` has 256 bytes"),
        each(limits::CONTENT_TYPE_BYTES_MAX, |s| draft().content_type(s), "`content_type` has 256 bytes"),
        each(limits::HEADER_NAME_BYTES_MAX, |s| draft().header(s, ""), "`header name` has 129 bytes"),
        each(limits::HEADERS_BYTES_MAX - 1, |s| draft().header("h", s), "`headers` has 16385 bytes"),
        (headers(limits::HEADERS_MAX, 0), headers(limits::HEADERS_MAX + 1, 0), "33 headers"),
        (
            Draft::raw("orders.placed", 1, vec![7; limits::PAYLOAD_BYTES_MAX]),
            Draft::raw("orders.placed", 1, vec![7; limits::PAYLOAD_BYTES_MAX + 1]),
            "`payload` has 983041 bytes",
        ),
        (Draft::raw("a", u32::MAX, ""), Draft::raw("a", 0, ""), "`version` must be 1 or more"),
    ]
}

/// The database takes all that the bounds allow, in every field at once. Faults 18 and 45
async fn every_bound_can_be_reached_and_not_exceeded<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outbox = world.outbox();
    let bounds = bounds();
    let allowed = bounds.len();
    for (within, beyond, says) in bounds {
        let mut tx = world.begin().await.unwrap();
        outbox.publish_draft(&mut tx, within.clone()).await.unwrap_or_else(|e| panic!("{says}: {e:?}"));
        for refused in [
            outbox.publish_draft(&mut tx, beyond.clone()).await.map(drop),
            outbox.publish_all(&mut tx, vec![within, beyond]).await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidDraft);
            assert!(error.to_string().contains(says), "{error}");
            assert!(!error.is_transient());
        }
        tx.commit().await.unwrap(); // no statement was refused, so the transaction goes on
    }
    assert_eq!(world.rows("outbox").await, i64::try_from(allowed).unwrap());
}

/// Strings that broke something somewhere: subjects, SQL, terminals, headers.
const POISON: &[&str] = &[
    "",
    " ",
    ".",
    "..",
    "a..b",
    ".a",
    "a.",
    "*",
    "a.*",
    ">",
    "a.>",
    "$JS.API.STREAM.DELETE.x",
    "a b",
    "a\tb",
    "a\r\nNats-Msg-Id: 1",
    "a\nb",
    "a\0b",
    "é",
    "\u{202e}gpj",
    "\u{1b}[31m",
    "'; DROP TABLE effects; --",
    "\"",
    "{outbox}",
    "$1",
    "?",
    "<script>alert(1)</script>",
    "%s%n",
    "../../etc/passwd",
];

/// Fault 47
async fn a_type_that_is_no_plain_name_is_refused<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let long = "a".repeat(4096);
    for poison in POISON.iter().copied().chain([long.as_str()]) {
        let error = world.outbox().publish_draft(&mut tx, Draft::raw(poison, 1, "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidDraft, "{poison:?}");
        assert!(!error.to_string().contains(poison) || poison.len() < 3, "{error}");
    }
    tx.commit().await.unwrap();
    assert_eq!(world.rows("outbox").await, 0);
}

/// The tables hold a producer in another language to the same names. Fault 47
async fn a_type_that_is_no_plain_name_is_refused_by_the_table<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let insert = format!("INSERT INTO {} (type, payload) VALUES ($1, $2)", DB::table_of("outbox"));
    let insert = async |name: &str| {
        let mut conn = world.pool().acquire().await.unwrap();
        let query = sqlx::query::<DB>(sql::<DB>(&insert));
        query.bind(name.to_owned()).bind(b"{}".to_vec()).execute(&mut *conn).await
    };
    for poison in POISON {
        assert!(insert(poison).await.is_err(), "{poison:?}");
    }
    insert("orders.placed-by_2").await.unwrap();
    assert_eq!(world.rows("outbox").await, 1);
}

/// Fault 46
async fn a_header_that_could_break_out_of_its_line_is_refused<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let reserved = [
        "Nats-Msg-Id",
        "nats-x",
        "CE-Id",
        "ce-type",
        "Twinbox-X",
        "traceparent",
        "TraceState",
        "content-type",
    ];
    for name in POISON.iter().chain(&reserved) {
        let error = world.outbox().publish_draft(&mut tx, draft().header(*name, "")).await.unwrap_err();
        assert!(error.to_string().contains("`header name`"), "{name:?}: {error}");
    }
    for value in POISON {
        let published = world.outbox().publish_draft(&mut tx, draft().header("h", *value)).await;
        assert_eq!(published.is_err(), value.chars().any(char::is_control), "{value:?}");
    }
    tx.commit().await.unwrap();
    for message in world.published("orders.placed", 100).await.unwrap() {
        assert!(POISON.contains(&message.headers[0].1.as_str()), "{message:?}");
    }
}

/// Text that is no name is kept as it is, or refused whole; nothing of it becomes SQL. Faults 45, 47
async fn poisonous_text_is_kept_as_it_is_or_refused<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let fields: [fn(&str) -> Draft; 5] = [
        |s| draft().id(s),
        |s| draft().key(s),
        |s| draft().subject(s),
        |s| draft().correlation_id(s),
        |s| draft().causation_id(s),
    ];
    let mut kept = Vec::new();
    for (n, make) in fields.iter().enumerate() {
        for poison in POISON {
            let published = world.outbox().publish_draft(&mut tx, make(poison)).await;
            let bad = poison.chars().any(char::is_control) || (n == 0 && poison.is_empty());
            assert_eq!(published.is_err(), bad, "field {n}: {poison:?}");
            kept.extend(published.map(|_| (n, *poison)));
        }
    }
    tx.commit().await.unwrap();
    let messages = world.published("orders.placed", 1_000).await.unwrap();
    assert_eq!(messages.len(), kept.len());
    for (m, (n, poison)) in messages.iter().zip(kept) {
        let id = Some(m.id.clone());
        let found = [&id, &m.key, &m.subject, &m.correlation_id, &m.causation_id][n];
        assert_eq!(found.as_deref(), Some(poison));
    }
}

/// Fault 45
async fn any_bytes_are_a_payload<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let deep = "[".repeat(100_000).into_bytes();
    let payloads: [&[u8]; 5] = [b"", b"\0", b"\xff\xfe", &deep, b"null"];
    let mut tx = world.begin().await.unwrap();
    for payload in payloads {
        let draft = Draft::raw("orders.placed", 1, payload.to_vec());
        world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    }
    tx.commit().await.unwrap();
    let messages = world.published("orders.placed", 10).await.unwrap();
    assert!(messages.iter().map(|m| &m.payload[..]).eq(payloads));
}

cases! {
    all: [
        every_bound_can_be_reached_and_not_exceeded,
        a_type_that_is_no_plain_name_is_refused,
        a_type_that_is_no_plain_name_is_refused_by_the_table,
        a_header_that_could_break_out_of_its_line_is_refused,
        poisonous_text_is_kept_as_it_is_or_refused,
        any_bytes_are_a_payload,
    ]
}
