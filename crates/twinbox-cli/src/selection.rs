//! The options that select messages of the log.
use crate::{
    exit::Exit,
    time::{When, resolve},
};
use clap::Args;
use twinbox_core::TypePattern;
use twinbox_sql::{Dialect, Selection, Store};

#[derive(Debug, Args)]
#[command(next_help_heading = "Messages (all given conditions must hold)")]
pub(crate) struct SelectionArguments {
    /// With a time from here on: `2026-11-20T03:00:00Z`, or `2h` for two hours ago. The time is the message's
    /// own.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// With a time before this one.
    #[arg(long, value_name = "TIME")]
    until: Option<When>,
    /// Of this type, such as `orders.placed`, `orders.*` or `orders.>`. Repeatable.
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<TypePattern>,
    /// With this key.
    #[arg(long)]
    key: Option<String>,
    /// With this event id. Repeatable.
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// From this CloudEvents source.
    #[arg(long)]
    source: Option<String>,
    /// With this correlation id.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// All messages of the log. `run` requires this or a condition.
    #[arg(long)]
    all: bool,
}

impl SelectionArguments {
    /// The selection. Without any condition it is the whole log.
    pub(crate) async fn resolve<DB: Dialect>(self, store: &Store<DB>) -> Result<Selection, Exit> {
        Ok(Selection::new()
            .since(resolve(self.since, store).await?)
            .until(resolve(self.until, store).await?)
            .types(self.types)
            .key(self.key)
            .ids(self.ids)
            .source(self.source)
            .correlation_id(self.correlation_id))
    }

    /// The same for a change: the whole log only with `--all`.
    pub(crate) async fn resolve_for_change<DB: Dialect>(self, store: &Store<DB>) -> Result<Selection, Exit> {
        let all = self.all;
        let selection = self.resolve(store).await?;
        if selection == Selection::new() && !all {
            return Err(Exit::usage("select messages, for example with --since or --type, or use --all"));
        }
        Ok(selection)
    }
}
