//! Output: tables for people, JSON for programs.
use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;
use std::{
    io::{ErrorKind, IsTerminal as _, Write as _},
    time::Duration,
};
use twinbox_core::Timestamp;
pub(crate) use twinbox_ops::wording::{bounded, counted, counted_or_more, duration, plain};

#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// The format of the output.
    #[arg(short, long, global = true, value_enum, default_value = "table", env = "TWINBOX_OUTPUT")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// One JSON value.
    Json,
    /// A JSON value a line.
    Jsonl,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
}

/// The longest text of a cell, in characters.
const CELL_MAX: usize = 48;

/// A column of a table: its title and the field of the record. A field that ends in `_seconds` is printed as
/// a duration.
pub(crate) type Column = (&'static str, &'static str);

impl Output {
    pub(crate) fn new(arguments: &OutputArguments) -> Self {
        Self { format: arguments.output }
    }

    /// Whether the output is for a person.
    pub(crate) fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// Prints records as a table. `none`: the text for an empty table.
    pub(crate) fn list(&self, columns: &[Column], records: &[impl Serialize], none: &str) {
        let values: Vec<Value> = records.iter().map(value).collect();
        match self.format {
            Format::Table if values.is_empty() => print_line(none),
            Format::Table => print_line(&table(columns, &values)),
            Format::Json => print_line(&pretty(&Value::Array(values))),
            Format::Jsonl => values.iter().for_each(|value| print_line(&value.to_string())),
        }
    }

    /// Prints records that are too wide for a table. `render`: the text of one.
    pub(crate) fn texts<T: Serialize>(&self, records: &[T], none: &str, render: impl Fn(&T) -> String) {
        match self.format {
            Format::Table if !records.is_empty() => {
                records.iter().for_each(|record| print_line(&render(record)));
            }
            _ => self.list(&[], records, none),
        }
    }

    /// Prints one record. `render`: its text for a person.
    pub(crate) fn one(&self, record: &impl Serialize, render: impl FnOnce() -> String) {
        match self.format {
            Format::Table => print_line(&render()),
            Format::Json => print_line(&pretty(&value(record))),
            Format::Jsonl => print_line(&value(record).to_string()),
        }
    }
}

fn value(record: &impl Serialize) -> Value {
    serde_json::to_value(record).unwrap_or(Value::Null)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A table of records, as wide as the terminal.
pub(crate) fn table_of(columns: &[Column], records: &[impl Serialize]) -> String {
    table(columns, &records.iter().map(value).collect::<Vec<_>>())
}

fn table(columns: &[Column], records: &[Value]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(columns.iter().map(|(title, _)| title.to_uppercase()));
    for record in records {
        table.add_row(columns.iter().map(|(_, field)| cell(field, &record[*field])));
    }
    let lines = table.to_string();
    lines.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect::<Vec<_>>().join("\n")
}

fn cell(field: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => brief(&plain(text)),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
        Value::Number(number) if field.ends_with("_seconds") => {
            duration(Duration::try_from_secs_f64(number.as_f64().unwrap_or_default()).unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// Shortens a text for a cell: no fraction of a second, no line breaks, at most [`CELL_MAX`] characters.
pub(crate) fn brief(text: &str) -> String {
    if Timestamp::parse(text).is_some()
        && let Some((seconds, _)) = text.split_once('.')
    {
        return format!("{seconds}Z");
    }
    let line = text.replace('\n', " ");
    let cut: String = line.chars().take(CELL_MAX).collect();
    if cut.len() < line.len() { cut + "…" } else { cut }
}

/// Prints a line to stdout. Ends the program quietly when the reader, such as `head`, has closed the pipe.
pub(crate) fn print_line(text: &str) {
    let written = writeln!(std::io::stdout().lock(), "{text}");
    written.unwrap_or_else(|error| exit_without_reader(&error));
}

/// Ends the program after stdout failed: quietly and with 0 when the reader has closed the pipe.
pub(crate) fn exit_without_reader(error: &std::io::Error) -> ! {
    std::process::exit(if error.kind() == ErrorKind::BrokenPipe { 0 } else { 1 });
}

/// Prints a line for a person to stderr. A closed stderr is no error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", plain(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_brief() {
        let cells =
            ["2026-11-22T14:57:39.909175Z", "2026-11-22T14:57:39Z", "a\nb", &"é".repeat(49)].map(brief);
        let second = "2026-11-22T14:57:39Z";
        assert_eq!(cells, [second, second, "a b", &("é".repeat(48) + "…")]);
    }

    #[test]
    fn a_table_shows_the_fields_of_its_records() {
        let records =
            [serde_json::json!({"name": "nats", "oldest_seconds": 61.2, "paused": null, "alive": true})];
        let columns =
            [("name", "name"), ("oldest", "oldest_seconds"), ("paused", "paused"), ("alive", "alive")];
        assert_eq!(table_of(&columns, &records), "NAME  OLDEST  PAUSED  ALIVE\nnats  1m 1s   -       yes");
    }
}
