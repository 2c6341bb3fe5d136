//! Before something is changed: how much, whether, and a trace.
use crate::{
    exit::Exit,
    output::{note, plain},
};
use clap::Args;
use std::io::{BufRead as _, IsTerminal as _};
use twinbox_sql::{Dialect, Intent, Store};

#[derive(Debug, Args)]
#[command(next_help_heading = "Asking, and keeping record")]
pub(crate) struct Change {
    /// Do it without asking. Needed where there is no terminal to ask on.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Why, for whoever reads the audit.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Who does it.
    #[arg(long = "as", value_name = "NAME", env = "TWINBOX_AS")]
    who: Option<String>,
}

impl Change {
    pub(crate) fn who(&self) -> String {
        let named = self.who.clone().filter(|who| !who.is_empty());
        let user = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        named.or_else(user).unwrap_or_else(|| "unknown".to_owned())
    }

    /// Says what is about to be done, and asks.
    pub(crate) fn agrees(&self, about: &str) -> Result<bool, Exit> {
        note(about);
        if self.dry_run {
            note("This was a dry run: nothing is changed.");
            return Ok(false);
        }
        let agrees = self.yes || confirmed()?;
        if !agrees {
            note("Nothing is changed.");
        }
        Ok(agrees)
    }

    /// Says what is about to be done, asks, puts it on record, does it, and puts on record to how many. None: it was not
    /// done, on purpose.
    pub(crate) async fn make<DB: Dialect, T>(
        &self,
        store: &Store<DB>,
        what: &str,
        target: &str,
        about: &str,
        act: impl AsyncFnOnce() -> Result<(u64, T), Exit>,
    ) -> Result<Option<T>, Exit> {
        if !self.agrees(about)? {
            return Ok(None);
        }
        let who = self.who();
        let intent = Intent { who: &who, what, target, reason: self.reason.as_deref() };
        let entry = store.begin_audit(&intent).await?;
        let (count, done) = act().await?;
        store.end_audit(entry, count).await?;
        Ok(Some(done))
    }
}

fn confirmed() -> Result<bool, Exit> {
    if !std::io::stdin().is_terminal() {
        return Err(Exit::usage("there is no terminal to ask on: say --yes, or --dry-run"));
    }
    eprint!("{} ", plain("Go on? [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Exit::failure(error.to_string()))?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
