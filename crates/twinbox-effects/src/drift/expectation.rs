//! How many effects the rows of a table should have.
use crate::request::{is_kind, kind_base};
use std::time::Duration;
use twinbox_core::limits::bounded;
use twinbox_sql::{Error, ErrorKind, engine::SourceTable};

/// How long rows are looked at, unless an expectation says otherwise.
const WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most bytes of the name of a table or a column.
const NAME_BYTES_MAX: usize = 63;

/// The beginning of an [`Expectation`]: how many effects, and of which kind.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Per {
    count: u32,
    kind: &'static str,
}

/// An expectation: each row of a table that fulfils a condition has a number of effects of a kind.
///
/// Effects of all qualifiers count. With a webhook for each of two endpoints,
/// `webhook.payment_captured:ep_1` and `:ep_2`, a payment has two effects of the kind
/// `webhook.payment_captured`.
///
/// The names and the SQL are code of the application, and become parts of statements. So they are `'static`:
/// never build them of data.
#[derive(Debug, Clone)]
#[must_use]
pub struct Expectation {
    pub(super) count: u32,
    pub(super) kind: &'static str,
    pub(super) source: SourceTable,
    pub(super) after: Duration,
    pub(super) within: Duration,
}

impl Expectation {
    /// Begins an expectation of this many effects.
    pub const fn exactly(count: u32) -> Per {
        Per { count, kind: "" }
    }

    /// Selects the rows that have effects, by a condition in SQL over their columns: all rows by default.
    pub const fn where_sql(mut self, condition: &'static str) -> Self {
        self.source.condition = condition;
        self
    }

    /// Names the column with the id, `id` by default. It is a UUID, unique and indexed, and the
    /// [source](crate::SourceId) of the effects.
    pub const fn id_column(mut self, column: &'static str) -> Self {
        self.source.id = column;
        self
    }

    /// Sets the source of the effects of a row where it is not the id: an SQL expression that is a UUID, over
    /// a row `s`, such as `s.message_id`. To find effects without a row it needs an index.
    pub const fn source_sql(mut self, expression: &'static str) -> Self {
        self.source.source = Some(expression);
        self
    }

    /// Names the column with the time at which a row has come to fulfil the condition, and how long after it
    /// the effects are expected. Required.
    ///
    /// Postgres: a `timestamptz`. SQLite: microseconds since 1970, or with
    /// [`time_sql`](Self::time_sql) an expression of them.
    pub const fn after(mut self, after: Duration, column: &'static str) -> Self {
        (self.after, self.source.time) = (bounded(after), column);
        self
    }

    /// Sets the time of a row by an SQL expression instead of a column.
    pub const fn time_sql(mut self, expression: &'static str) -> Self {
        self.source.time = expression;
        self
    }

    /// Sets the age up to which rows are looked at, 7 days by default. Keep it shorter than ended effects are
    /// kept: a purged effect would be missing.
    pub const fn within(mut self, within: Duration) -> Self {
        self.within = bounded(within);
        self
    }

    /// Refuses names that are no identifiers, and what is missing.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| {
            Err(Error::new(ErrorKind::Configuration, format!("the expectation of {}: {what}", self.name())))
        };
        if !is_kind(self.kind) || self.kind != kind_base(self.kind) {
            return refuse("its kind must be one without a qualifier, such as `email.welcome`".to_owned());
        }
        let table = self.source.table;
        if table.split('.').count() > 2 || !table.split('.').all(is_identifier) {
            return refuse(format!("{table:?} is no table: write `payments` or `shop.payments`"));
        }
        if !is_identifier(self.source.id) {
            return refuse(format!("{:?} is no column", self.source.id));
        }
        if self.source.time.is_empty() {
            return refuse("say with `after` when the effects of a row are due".to_owned());
        }
        if self.within <= self.after {
            return refuse("no row is older than `after` and younger than `within`".to_owned());
        }
        let parts = [self.source.condition, self.source.time, self.source.source.unwrap_or_default()];
        if parts.iter().any(|sql| sql.contains([';', '[', ']']) || sql.contains("--")) {
            return refuse("its SQL must have no `;`, no bracket and no comment".to_owned());
        }
        Ok(())
    }

    /// How checks and reports name it.
    pub(super) fn name(&self) -> String {
        format!("{} per {}", self.kind, self.source.table)
    }

    /// How kinds with and without a qualifier begin, if a `:` follows them.
    pub(super) fn prefix(&self) -> String {
        format!("{}:", self.kind)
    }
}

impl Per {
    /// Sets the kind of the effects, without a qualifier.
    pub const fn of(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    /// Names the table, with its schema if it needs one.
    pub const fn per(self, table: &'static str) -> Expectation {
        Expectation {
            count: self.count,
            kind: self.kind,
            source: SourceTable { table, id: "id", source: None, condition: "true", time: "" },
            after: Duration::ZERO,
            within: WITHIN,
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= NAME_BYTES_MAX
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_no_statement_is_refused_with_a_reason() {
        const MINUTE: Duration = Duration::from_secs(60);
        let of = |kind, table| Expectation::exactly(1).of(kind).per(table).after(MINUTE, "at");
        of("a.b", "shop.payments").check().unwrap();
        of("a", "_p").where_sql("status = 'x'").id_column("pid").check().unwrap();
        for (expectation, says) in [
            (of("", "p"), "its kind"),
            (of("a:b", "p"), "without a qualifier"),
            (of("a", ""), "no table"),
            (of("a", "p; DROP TABLE p"), "no table"),
            (of("a", "a.b.c"), "no table"),
            (of("a", "pay ments"), "no table"),
            (of("a", "p").id_column("1d"), "no column"),
            (of("a", "p").id_column("id)"), "no column"),
            (Expectation::exactly(1).of("a").per("p"), "say with `after`"),
            (of("a", "p").within(MINUTE), "no row is older"),
            (of("a", "p").where_sql("true; DELETE FROM p"), "its SQL"),
            (of("a", "p").where_sql("true -- x"), "its SQL"),
        ] {
            let error = expectation.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
