//! `twinbox-relay purge`.
use crate::{
    config::Duration,
    failure::Failure,
    schemas::{Schema, Schemas},
};
use clap::{Args, ValueEnum};
use twinbox_log::{Keeper, KeeperReport, Log, OnMaxLag, Retention};
use twinbox_sql::Dialect;

#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    /// Keep messages for this long. 100 messages a second of 1 KB are about 60 GB a week.
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    keep: Duration,
    /// The longest time that a destination may be behind.
    #[arg(long, value_name = "DURATION")]
    max_lag: Option<Duration>,
    /// What to do with a destination that is further behind.
    #[arg(long, value_enum, default_value = "block", requires = "max_lag")]
    on_max_lag: MaxLagAction,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MaxLagAction {
    /// Report it, and keep all messages that it has not settled.
    Block,
    /// Detach it, and delete messages that it has not settled too. It relays nothing until it is retired and
    /// started again.
    Detach,
}

impl PurgeArguments {
    /// Purges one schema, or all schemas of the file.
    pub(crate) async fn run<DB: Dialect>(
        &self,
        schemas: &Schemas<DB>,
        schema: Option<&str>,
    ) -> Result<(), Failure> {
        match (schema, schemas.all()) {
            (Some(name), _) => return self.purge(schemas.named(name)?).await,
            (None, [only]) => return self.purge(only).await,
            (None, _) => {}
        }
        // A schema that fails does not stop the others.
        let mut failed = Vec::new();
        for schema in schemas.all() {
            if let Err(error) = self.purge(schema).await {
                failed.push(format!("{}{error}", schema.prefix));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
    }

    async fn purge<DB: Dialect>(&self, Schema { store, prefix, .. }: &Schema<DB>) -> Result<(), Failure> {
        store.check().await?;
        let (on_max_lag, action) = match self.on_max_lag {
            MaxLagAction::Block => (OnMaxLag::Block, "all messages that it has not settled are kept"),
            MaxLagAction::Detach => (OnMaxLag::Detach, "it is detached"),
        };
        let mut retention = Retention::new(self.keep.0);
        if let Some(max_lag) = self.max_lag {
            retention = retention.max_lag(max_lag.0, on_max_lag);
        }
        let purged = Log::new(store).purge(retention).await?;
        println!("{prefix}{} messages deleted", purged.messages);
        match store.idempotency_keys().purge().await? {
            0 => {}
            keys => println!("{prefix}{keys} expired idempotency keys deleted"),
        }
        match store.idempotency_keys().purge_webhooks().await? {
            0 => {}
            receipts => println!("{prefix}{receipts} expired receipts of webhooks deleted"),
        }
        let KeeperReport { rows, forbidden, error, .. } = Keeper::new(store).purge_ended().await;
        for (table, rows) in rows.into_iter().filter(|(_, rows)| *rows > 0) {
            println!("{prefix}{rows} rows of {table} deleted");
        }
        if let Some(error) = error {
            return Err(error.into());
        }
        if !forbidden.is_empty() {
            return Err(format!("the role may not delete rows of {}", forbidden.join(", ")).into());
        }
        for reader in purged.lagging {
            println!("{prefix}{reader:?} is too far behind: {action}");
        }
        if let Some(reader) = purged.slowest_reader {
            println!("{prefix}{reader:?} is furthest behind: messages that are old enough are kept for it");
        }
        Ok(())
    }
}
