//! Changes: show the effect and the database, ask, write the audit, act, print the result.
use crate::{
    exit::Exit,
    output::{note, plain},
    session::Session,
};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use twinbox_ops::AuditIntent;
use twinbox_sql::Dialect;

#[derive(Debug, Args)]
#[command(next_help_heading = "Change")]
pub(crate) struct ChangeArguments {
    /// Do not ask. Required without a terminal.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Show the effect and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// The reason, for the audit.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Your name, for the audit. Default: the user of the operating system.
    #[arg(long = "as", value_name = "NAME", env = "TWINBOX_AS")]
    operator: Option<String>,
}

/// A change before it is made.
pub(crate) struct Change<'a> {
    /// The noun and the verb.
    pub(crate) command: &'static str,
    /// The changed thing, for the audit.
    pub(crate) target: &'a str,
    /// A sentence: "This will …".
    pub(crate) effect: String,
}

/// A change after it was made.
pub(crate) struct Done {
    count: u64,
    text: String,
    details: Map<String, Value>,
}

impl Done {
    /// `count`: the number of changed things, for the audit. `text`: the result for a person.
    pub(crate) fn new(count: u64, text: impl Into<String>) -> Self {
        Self { count, text: text.into(), details: Map::new() }
    }

    /// Adds a field to the JSON record.
    pub(crate) fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

#[derive(Serialize)]
struct ChangeRow<'a> {
    command: &'static str,
    target: &'a str,
    service: &'a str,
    database: String,
    dry_run: bool,
    /// None: a dry run.
    count: Option<u64>,
    #[serde(flatten)]
    details: Map<String, Value>,
}

impl ChangeArguments {
    pub(crate) fn operator(&self) -> String {
        operator(self.operator.as_deref())
    }

    /// The reason that a pause keeps.
    pub(crate) fn pause_reason(&self) -> String {
        self.reason.clone().unwrap_or_else(|| format!("by {}", self.operator()))
    }

    /// Shows the effect and asks. False: a dry run, whose record is printed.
    pub(crate) fn agreed<DB: Dialect>(
        &self,
        session: &Session<DB>,
        change: &Change<'_>,
    ) -> Result<bool, Exit> {
        note(&format!("Service {:?}, {}.", session.store.service(), session.database));
        note(&change.effect);
        if self.dry_run {
            note("This was a dry run: nothing is changed.");
            if !session.output.is_table() {
                print(session, change, None, Map::new(), "");
            }
            return Ok(false);
        }
        if self.yes || ask()? { Ok(true) } else { Err(Exit::declined()) }
    }

    /// Makes the change with an audit entry. None: a dry run, whose record is printed.
    ///
    /// The entry is written first and gets its count last. A crash between leaves an entry without a count.
    pub(crate) async fn make<DB: Dialect, T>(
        &self,
        session: &Session<DB>,
        change: &Change<'_>,
        act: impl AsyncFnOnce() -> Result<(u64, T), Exit>,
    ) -> Result<Option<T>, Exit> {
        if !self.agreed(session, change)? {
            return Ok(None);
        }
        let operator = self.operator();
        let (command, target, reason) = (change.command, change.target, self.reason.as_deref());
        let entry =
            session.ops.begin_audit(&AuditIntent { operator: &operator, command, target, reason }).await?;
        let (count, result) = act().await?;
        session.ops.end_audit(entry, count).await?;
        Ok(Some(result))
    }

    /// Makes the change with an audit entry, and prints the result.
    pub(crate) async fn run<DB: Dialect>(
        &self,
        session: &Session<DB>,
        change: &Change<'_>,
        act: impl AsyncFnOnce() -> Result<Done, Exit>,
    ) -> Result<(), Exit> {
        let act = async || {
            let done = act().await?;
            Ok((done.count, done))
        };
        if let Some(done) = self.make(session, change, act).await? {
            print(session, change, Some(done.count), done.details, &done.text);
        }
        Ok(())
    }
}

/// Returns the name that was given, or that of the user of the operating system.
pub(crate) fn operator(named: Option<&str>) -> String {
    let named = named.filter(|name| !name.is_empty()).map(str::to_owned);
    let user = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    named.or_else(user).unwrap_or_else(|| "unknown".to_owned())
}

/// Prints the result of a change that had nothing to do, or that was made without [`ChangeArguments::run`].
pub(crate) fn print_done<DB: Dialect>(session: &Session<DB>, change: &Change<'_>, done: Done) {
    print(session, change, Some(done.count), done.details, &done.text);
}

fn print<DB: Dialect>(
    session: &Session<DB>,
    change: &Change<'_>,
    count: Option<u64>,
    details: Map<String, Value>,
    text: &str,
) {
    let row = ChangeRow {
        command: change.command,
        target: change.target,
        service: session.store.service(),
        database: session.database.id(),
        dry_run: count.is_none(),
        count,
        details,
    };
    session.output.one(&row, || text.to_owned());
}

fn ask() -> Result<bool, Exit> {
    if !std::io::stdin().is_terminal() {
        return Err(Exit::usage("there is no terminal to ask on: use --yes or --dry-run"));
    }
    let _ = write!(std::io::stderr(), "{} ", plain("Go on? [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Exit::failure(format!("reading the answer failed: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
