//! `twinbox effects`.
mod change;
mod row;
mod show;

use crate::{
    change::ChangeArguments,
    exit::Exit,
    output::{bounded, note},
    session::Session,
    time::{When, resolve},
};
use clap::{Args, Subcommand, ValueEnum};
use row::EffectRow;
use std::time::Duration;
use twinbox_ops::effects::{Change, EffectFilter, EffectId, Resolution};
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum EffectsCommand {
    /// List side effects, newest first.
    List {
        #[command(flatten)]
        filter: FilterArguments,
        /// Begin with effects before this position, which a page before has named.
        #[arg(long, value_name = "POSITION")]
        before: Option<i64>,
        /// The number of effects.
        #[arg(long, default_value_t = 50, value_name = "NUMBER")]
        limit: usize,
    },
    /// Show one side effect with its request.
    Show {
        /// Its position, or its UUID.
        id: EffectId,
    },
    /// Send a failed effect again, under a new key. Refused if its vendor may have acted: see `resolve`.
    Retry {
        /// Its position, or its UUID.
        id: EffectId,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Say whether the vendor of an unknown effect has acted. First look there.
    Resolve {
        /// Its position, or its UUID.
        id: EffectId,
        /// Whether the vendor has acted, as you found there.
        found: Found,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct FilterArguments {
    /// In this state.
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<State>,
    /// For this vendor.
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,
    /// Of this kind. Without a qualifier: with any qualifier.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Planned from here on: `2026-11-20T03:00:00Z`, or `2h` for two hours ago.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Pending,
    Fired,
    Confirmed,
    Unknown,
    Failed,
    Compensated,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Found {
    /// The vendor acted: the effect is confirmed.
    Applied,
    /// The vendor did nothing, and no earlier send can act any more: it is sent again, under a new key.
    NotApplied,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Fired => "fired",
            Self::Confirmed => "confirmed",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
            Self::Compensated => "compensated",
        }
    }
}

pub(crate) async fn run<DB: Dialect>(command: EffectsCommand, session: &Session<DB>) -> Result<(), Exit> {
    match command {
        EffectsCommand::List { filter, before, limit } => list(session, filter, before, limit).await,
        EffectsCommand::Show { id } => show::show(session, id).await,
        EffectsCommand::Retry { id, change } => change::run(session, id, Change::Retry, &change).await,
        EffectsCommand::Resolve { id, found, change } => {
            let resolution = match found {
                Found::Applied => Resolution::Applied,
                Found::NotApplied => Resolution::NotApplied,
            };
            change::run(session, id, Change::Resolve(resolution), &change).await
        }
    }
}

async fn list<DB: Dialect>(
    session: &Session<DB>,
    arguments: FilterArguments,
    before: Option<i64>,
    limit: usize,
) -> Result<(), Exit> {
    let filter = EffectFilter {
        state: arguments.state.map(|state| state.as_str().to_owned()),
        vendor: arguments.vendor,
        kind: arguments.kind,
        since: resolve(arguments.since, &session.store).await?,
    };
    let page = session.ops.effects(&filter, before, limit).await?;
    let rows = Vec::from_iter(page.effects.iter().map(EffectRow::from));
    session.output.list(&EffectRow::COLUMNS, &rows, "There are no such effects.");
    if let Some(next) = page.next {
        note(&format!("Older effects were not looked at: use --before {next}."));
    }
    let problems = session.ops.effect_problems(Duration::ZERO).await?;
    if session.output.is_table() && problems.unknown + problems.failed > 0 {
        note(&format!(
            "In total: {} unknown, {} failed.",
            bounded(problems.unknown, "effect"),
            bounded(problems.failed, "effect")
        ));
    }
    Ok(())
}
