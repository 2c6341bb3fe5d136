//! Statements over the messages that a replay selects. They are made for each selection, because their
//! conditions differ; values are bound.
use crate::{Dialect, Selection, micros::Micros, statement::Query};
use twinbox_core::Timestamp;

/// A condition of a `WHERE` clause on the outbox, with the values of its binds.
#[derive(Debug)]
pub struct Condition {
    text: String,
    binds: Vec<Bind>,
}

/// A value to bind.
#[derive(Debug)]
enum Bind {
    Time(Timestamp),
    Text(String),
}

impl Condition {
    fn one(text: &str, bind: Bind) -> Self {
        Self { text: text.to_owned(), binds: vec![bind] }
    }

    fn any_of(column: &str, texts: impl Iterator<Item = String>) -> Self {
        let binds = Vec::from_iter(texts.map(Bind::Text));
        Self { text: format!("{column} IN ({})", vec!["?"; binds.len()].join(", ")), binds }
    }

    /// Matches messages whose position is in a range.
    pub fn positions(first: i64, last: i64) -> Self {
        Self { text: format!("o.position BETWEEN {first} AND {last}"), binds: Vec::new() }
    }

    /// Matches messages whose type is one of these.
    pub fn types(types: impl Iterator<Item = String>) -> Self {
        Self::any_of("o.type", types)
    }

    /// Returns the conditions of a selection, without its type patterns.
    pub fn of(selection: &Selection, service: &str) -> Vec<Self> {
        let mut all = Vec::new();
        if let Some(since) = selection.since {
            all.push(Self::one("o.time >= ?", Bind::Time(since)));
        }
        if let Some(until) = selection.until {
            all.push(Self::one("o.time < ?", Bind::Time(until)));
        }
        if let Some(key) = &selection.key {
            all.push(Self::one("o.key = ?", Bind::Text(key.clone())));
        }
        if let Some(source) = &selection.source {
            let text = if source == service { "(o.source IS NULL OR o.source = ?)" } else { "o.source = ?" };
            all.push(Self::one(text, Bind::Text(source.clone())));
        }
        if let Some(id) = &selection.correlation_id {
            all.push(Self::one("COALESCE(o.correlation_id, o.id) = ?", Bind::Text(id.clone())));
        }
        if !selection.ids.is_empty() {
            all.push(Self::any_of("o.id", selection.ids.iter().cloned()));
        }
        all
    }
}

/// The columns that are read of selected messages.
#[derive(Debug, Clone, Copy)]
pub enum Selected {
    /// The counts, times and positions of the messages by type.
    CountsByType,
    /// The first messages, without payloads.
    Heads,
    /// The first messages, with payloads.
    Messages,
}

/// Returns SQL that reads messages which a cursor has settled and that are not parked. Binds: p, w, position,
/// destination, those of the conditions, and a limit unless they are counted.
pub fn select_settled(selected: Selected, conditions: &[Condition]) -> String {
    let columns = match selected {
        Selected::CountsByType => {
            "o.type, count(*) AS messages, min(o.time) AS oldest, max(o.time) AS newest,
            min(o.position) AS first, max(o.position) AS last, {replay_start} AS start"
        }
        Selected::Heads => "o.position, o.id AS event_id, o.type, o.key, o.time",
        Selected::Messages => "o.position, {message}",
    };
    let end = match selected {
        Selected::CountsByType => "GROUP BY o.type\n        ORDER BY o.type",
        Selected::Heads | Selected::Messages => "ORDER BY o.position\n        LIMIT ?",
    };
    let conditions = all(conditions);
    format!(
        "{{with_cursor}}
        SELECT {columns}
        FROM {{outbox}} o, s
        WHERE {{is_settled}}
            AND NOT EXISTS (
                SELECT 1
                FROM {{parked_messages}} k
                WHERE k.destination = ? AND k.position = o.position){conditions}
        {end}"
    )
}

/// Returns SQL that counts messages by type, version and codec. Binds: those of the conditions.
pub fn count_selected(conditions: &[Condition]) -> String {
    let conditions = all(conditions);
    format!(
        "
        SELECT false AS is_dead, '' AS reader, o.type, o.version, {{header twinbox-codec}} AS codec,
            count(*) AS messages, min(o.id) AS example
        FROM {{outbox}} o
        WHERE o.type <> ''
            AND NOT (length(o.payload) = 0 AND COALESCE({{header twinbox-redacted}}, '') = 'true'){conditions}
        GROUP BY 1, 2, 3, 4, 5"
    )
}

fn all(conditions: &[Condition]) -> String {
    conditions.iter().map(|condition| format!("\n            AND {}", condition.text)).collect()
}

/// Binds the values of conditions to a query.
pub fn bind<'q, DB: Dialect>(query: Query<'q, DB>, conditions: Vec<Condition>) -> Query<'q, DB> {
    let binds = conditions.into_iter().flat_map(|condition| condition.binds);
    binds.fold(query, |query, bind| match bind {
        Bind::Time(time) => query.bind(Micros(time)),
        Bind::Text(text) => query.bind(text),
    })
}
