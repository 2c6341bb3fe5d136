//! Each column of a row with a payload is bound to it when it is encoded, or stays in the clear for a reason.
use crate::support::{
    cases::cases,
    codec::store_with,
    effects::{mail, plan},
    stores::{Placed, TestDb, World},
};
use sqlx::AssertSqlSafe;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};
use twinbox::{
    StoreOptions,
    codec::{EncodedPayload, PayloadCodec, PayloadContext, PayloadPurpose},
    operation::{OperationKey, OperationPolicy},
    seam::BoxError,
};

/// A table whose rows hold payloads.
struct Table {
    name: &'static str,
    purpose: PayloadPurpose,
    /// What the context calls otherwise, and its column here, if there is one.
    renamed: &'static [(&'static str, Option<&'static str>)],
    /// Columns that are not bound, and why.
    clear: &'static [(&'static str, &'static str)],
}

const PAYLOAD: (&str, &str) = ("payload headers", "the encoded payload, and what a codec needs to decode it");
const BODY: (&str, &str) = ("codec_headers", "what a codec needs to decode the body");
const MESSAGE_ID: (&str, &str) = ("message_id", "made of source, type and id");
const TRACE: (&str, &str) = (
    "correlation_id causation_id traceparent",
    "for people who look for a cause, and a broker may lose them",
);
const GIVEN: (&str, &str) = ("time sequence", "the database of the producer may give them");

const TABLES: [Table; 6] = [
    Table {
        name: "outbox",
        purpose: PayloadPurpose::Message,
        renamed: &[],
        clear: &[PAYLOAD, TRACE, ("position txid time", "the database gives them, or may")],
    },
    Table {
        name: "delayed_messages",
        purpose: PayloadPurpose::Message,
        // All are of this service.
        renamed: &[("source", None)],
        clear: &[
            PAYLOAD,
            TRACE,
            MESSAGE_ID,
            ("insert_order time", "the database gives them, or may"),
            ("not_before", "a message of the log does not have it"),
        ],
    },
    Table {
        name: "dead_letters",
        purpose: PayloadPurpose::Message,
        renamed: &[("id", Some("event_id"))],
        clear: &[
            PAYLOAD,
            TRACE,
            MESSAGE_ID,
            GIVEN,
            ("id consumer", "a message is for all consumers"),
            ("reason error fingerprint attempts given_up_at", "why and when it was given up"),
            ("redrive_at redrive_attempts_left", "how far its redrive has come"),
        ],
    },
    Table {
        name: "parked_deliveries",
        purpose: PayloadPurpose::Message,
        renamed: &[("id", Some("event_id"))],
        clear: &[
            PAYLOAD,
            TRACE,
            MESSAGE_ID,
            GIVEN,
            ("id consumer partition", "a message is for all consumers"),
            ("next_attempt_at parked_at", "when it is tried"),
        ],
    },
    Table {
        name: "side_effects",
        purpose: PayloadPurpose::SideEffect,
        // The service is that of the database.
        renamed: &[("source", None)],
        clear: &[
            BODY,
            ("request", "the encoded body"),
            ("position created_at", "the database gives them"),
            ("id", "made of source_id and kind, and not there in a row that SQL has planned"),
            ("correlation_id traceparent", "for people who look for a cause"),
            ("compensates", "what becomes of another effect when this one is confirmed"),
            ("generation idempotency_key provider_key_expires_at", "change with a new key for the vendor"),
            ("state attempts failures owner next_attempt_at", "how far the sending has come"),
            ("first_fired_at fired_at ended_at", "how far the sending has come"),
            ("provider_ref http_code error_code last_error", "what the vendor said"),
        ],
    },
    Table {
        name: "idempotency_keys",
        purpose: PayloadPurpose::Response,
        renamed: &[("source", None)],
        clear: &[
            BODY,
            ("response_body", "the encoded body"),
            ("body_kind result_ref", "only an inline body is encoded"),
            ("tenant scope key", "the slot is made of them, and the text of the key need not be kept"),
            ("request_hash hash_alg", "whether the same caller gets this response or a refusal"),
            ("owner lease_until recovery_point tokens unfinished", "from before there was a response"),
            ("attempts uncounted_attempts", "how often it was tried"),
            ("created_at updated_at expires_at", "how long the response is kept"),
        ],
    },
];

/// The columns to which each payload was bound.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<HashMap<PayloadPurpose, BTreeSet<&'static str>>>>);

impl PayloadCodec for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn encode(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<EncodedPayload, BoxError> {
        // The source is no column of the context, but it is part of it.
        let columns = context.columns().map(|(column, _)| column).chain(["source"]).collect();
        self.0.lock().unwrap().insert(context.purpose, columns);
        Ok(EncodedPayload::new(payload.to_vec()))
    }

    fn decode(
        &self,
        _: &PayloadContext<'_>,
        _: &[(String, String)],
        payload: &[u8],
    ) -> Result<Vec<u8>, BoxError> {
        Ok(payload.to_vec())
    }
}

/// The columns of all tables of Twinbox, by the names of the tables.
async fn columns<DB: TestDb>(world: &World<DB>) -> BTreeMap<String, BTreeSet<String>> {
    let all = match DB::MODULE {
        "postgres" => {
            "SELECT table_name::text || '.' || column_name::text FROM information_schema.columns
            WHERE table_schema = 'twinbox'"
        }
        "mysql" => {
            "SELECT CAST(CONCAT(SUBSTRING(table_name, 9), '.', column_name) AS CHAR)
            FROM information_schema.columns
            WHERE table_schema = DATABASE() AND table_name LIKE 'twinbox\\_%'"
        }
        _ => {
            "SELECT substr(m.name, 9) || '.' || c.name FROM sqlite_master m, pragma_table_xinfo(m.name) c
            WHERE m.type = 'table' AND m.name LIKE 'twinbox\\_%' ESCAPE '\\'"
        }
    };
    let mut conn = world.pool().acquire().await.unwrap();
    let all = sqlx::query_scalar::<DB, String>(AssertSqlSafe(all.to_owned()));
    let mut columns = BTreeMap::<_, BTreeSet<_>>::new();
    for name in all.fetch_all(&mut *conn).await.unwrap() {
        let (table, column) = name.split_once('.').unwrap();
        columns.entry(table.to_owned()).or_default().insert(column.to_owned());
    }
    columns
}

/// A new column fails this test until somebody has decided. Bind it in the context of its payload if a
/// change of it would show clear text to somebody else, or would change what the clear text means.
async fn each_column_is_bound_or_in_the_clear_for_a_reason<DB: TestDb>() {
    let (world, recorder) = (World::<DB>::new().await, Recorder::default());
    let store = store_with(&world, StoreOptions::new().codec(recorder.clone()));
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    plan(&store, mail("1")).await;
    let key = OperationKey { key: "a".into(), ..OperationKey::default() };
    store.operation(&key, &1, &OperationPolicy::default(), async |_| Ok(2)).await.unwrap();
    let contexts = recorder.0.lock().unwrap().clone();

    let columns = columns(&world).await;
    let holds_payloads = |columns: &BTreeSet<String>| {
        ["payload", "request", "response_body", "codec_headers"].iter().any(|name| columns.contains(*name))
    };
    let found = columns.iter().filter(|(_, columns)| holds_payloads(columns)).map(|(name, _)| name.as_str());
    assert_eq!(BTreeSet::from_iter(found), BTreeSet::from_iter(TABLES.iter().map(|table| table.name)));
    for Table { name, purpose, renamed, clear } in TABLES {
        let mut open: BTreeSet<&str> = columns[name].iter().map(String::as_str).collect();
        for column in &contexts[&purpose] {
            let here = renamed.iter().find(|(of_context, _)| of_context == column);
            if let Some(bound) = here.map_or(Some(*column), |(_, here)| *here) {
                assert!(open.remove(bound), "{name} has no column {bound}, or it is bound twice");
            }
        }
        for column in clear.iter().flat_map(|(columns, _)| columns.split(' ')) {
            let is_there = open.remove(column) || column == "txid" && DB::MODULE != "postgres";
            assert!(is_there, "{name}.{column} is not there, or it is bound after all");
        }
        assert!(open.is_empty(), "bind these columns of {name}, or say why not: {open:?}");
    }
}

cases! {
    all: [each_column_is_bound_or_in_the_clear_for_a_reason]
}
