//! `twinbox-relay purge`.
use crate::{
    config::Duration,
    failure::Failure,
    schemas::{Schema, Schemas},
};
use clap::{Args, ValueEnum};
use twinbox_log::{Keeper, KeeperReport, Log, OnMaxLag, Retention};
use twinbox_ops::{Ops, Role};
use twinbox_sql::{Dialect, Error, Store};

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
        match store.check().await {
            Err(error) if error.is_forbidden() => return Err(lacking(store, "read the tables").await.into()),
            checked => checked?,
        }
        let (on_max_lag, action) = match self.on_max_lag {
            MaxLagAction::Block => (OnMaxLag::Block, "all messages that it has not settled are kept"),
            MaxLagAction::Detach => (OnMaxLag::Detach, "it is detached"),
        };
        let mut retention = Retention::new(self.keep.0);
        if let Some(max_lag) = self.max_lag {
            retention = retention.max_lag(max_lag.0, on_max_lag);
        }
        let (mut unpurged, keys) = (Unpurged::default(), store.idempotency_keys());
        let purged = unpurged.or_none("outbox", Log::new(store).purge(retention).await);
        if let Some(purged) = &purged {
            println!("{prefix}{} messages deleted", purged.messages);
        }
        match unpurged.or_none("idempotency_keys", keys.purge().await) {
            None | Some(0) => {}
            Some(keys) => println!("{prefix}{keys} expired idempotency keys deleted"),
        }
        match unpurged.or_none("webhook_receipts", keys.purge_webhooks().await) {
            None | Some(0) => {}
            Some(receipts) => println!("{prefix}{receipts} expired receipts of webhooks deleted"),
        }
        let KeeperReport { rows, forbidden, failed, error, .. } = Keeper::new(store).purge_ended().await;
        for (table, rows) in rows.into_iter().filter(|(_, rows)| *rows > 0) {
            println!("{prefix}{rows} rows of {table} deleted");
        }
        unpurged.forbidden.extend(forbidden);
        unpurged.reasons.extend(error.map(|error| not_deleted(&failed.join(", "), &error)));
        if let Some(purged) = purged {
            for reader in purged.lagging {
                println!("{prefix}{reader:?} is too far behind: {action}");
            }
            if let Some(reader) = purged.slowest_reader {
                println!(
                    "{prefix}{reader:?} is furthest behind: messages that are old enough are kept for it"
                );
            }
        }
        if !unpurged.forbidden.is_empty() {
            let what = format!("delete rows of {}", unpurged.forbidden.join(", "));
            unpurged.reasons.push(lacking(store, &what).await);
        }
        unpurged.into_result()
    }
}

/// The tables of which rows could not be deleted. One that is locked keeps no other.
#[derive(Default)]
struct Unpurged {
    forbidden: Vec<&'static str>,
    reasons: Vec<String>,
}

impl Unpurged {
    fn or_none<T>(&mut self, table: &'static str, purged: Result<T, Error>) -> Option<T> {
        match purged {
            Ok(purged) => return Some(purged),
            Err(error) if error.is_forbidden() => self.forbidden.push(table),
            Err(error) => self.reasons.push(not_deleted(table, &error)),
        }
        None
    }

    fn into_result(self) -> Result<(), Failure> {
        if self.reasons.is_empty() { Ok(()) } else { Err(self.reasons.join("\n").into()) }
    }
}

/// Says which role may not do something, what it lacks of the rights of a keeper, and how it gets them.
async fn lacking<DB: Dialect>(store: &Store<DB>, what: &str) -> String {
    let ops = Ops::new(store);
    // The error is whole without them.
    let role = ops.role().await.ok().flatten().unwrap_or_default();
    let missing = ops.missing_rights(None, Role::Keeper).await.ok().flatten().unwrap_or_default();
    let lacks = if missing.is_empty() { String::new() } else { format!(": it lacks {}", missing.join("; ")) };
    let mysql = if DB::NAME == "MySQL" { "--mysql " } else { "" };
    let namespace = &store.engine().catalog().namespace;
    let print = format!("twinbox grants print {mysql}--namespace {namespace} --role {role}=keeper");
    format!(
        "the role {role:?} may not {what}{lacks}. `{print}` prints what it needs. Or set `database_url` of \
         `[keeper]` to the URL of a role that may"
    )
}

fn not_deleted(tables: &str, error: &Error) -> String {
    format!("rows of {tables} could not be deleted: {error}")
}
