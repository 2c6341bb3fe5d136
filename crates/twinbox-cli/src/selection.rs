//! Which messages, as options.
use crate::{
    exit::Exit,
    time::{When, resolve},
};
use clap::Args;
use twinbox_core::TypePattern;
use twinbox_sql::{Dialect, Store, replay::Selection};

#[derive(Debug, Args)]
#[command(next_help_heading = "Which messages; all that is said has to hold")]
pub(crate) struct SelectionArguments {
    /// From this time on: `2026-11-20T03:00:00Z`, or `2h` for two hours ago. It is the message's own time.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<When>,
    /// Of a type, such as `orders.placed`, `orders.*` or `orders.>`. May be given several times.
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<TypePattern>,
    /// Of this key.
    #[arg(long)]
    key: Option<String>,
    /// With this event id. May be given several times.
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// Of this CloudEvents source.
    #[arg(long)]
    source: Option<String>,
    /// Of this business operation.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
}

impl SelectionArguments {
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
}
