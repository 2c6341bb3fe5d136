//! The program's commands that look after a log.
use crate::{
    config::Config,
    program::Failure,
    schemas::{Schema, Schemas},
};
use clap::{Args, ValueEnum};
use std::time::Duration;
use twinbox_sql::{Dialect, OnMaxLag, Retention, Store};

pub(crate) enum Maintenance {
    Purge(PurgeArguments),
    Retire(String),
    Redact(String),
    Rebase,
    OpenBreaker { destination: String, reason: String },
    CloseBreaker(String),
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    /// How old is old enough. 100 messages a second of 1 KB are about 60 GB a week.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = humantime::parse_duration)]
    keep: Duration,
    /// How far a destination may be behind.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    max_lag: Option<Duration>,
    /// What becomes of one that is further behind.
    #[arg(long, value_enum, default_value = "block", requires = "max_lag")]
    on_max_lag: Lagging,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Lagging {
    /// Report it, and keep everything that it has not settled.
    Block,
    /// Delete what it has not settled like the rest. It relays no more until it is retired and started again.
    Detach,
}

impl Maintenance {
    /// In the schema that is named; else where the file has the destination; what names none, in all of them.
    pub(crate) async fn run<DB: Dialect>(
        self,
        schemas: &Schemas<DB>,
        config: &Config,
        schema: Option<&str>,
    ) -> Result<(), Failure> {
        let one = match (schema, &self) {
            (Some(name), _) => schemas.named(name)?,
            (None, Self::OpenBreaker { destination: id, .. } | Self::CloseBreaker(id))
                if config.destinations.contains_key(id) =>
            {
                schemas.named(config.namespace_of(id))?
            }
            (None, Self::Purge(_) | Self::Redact(_) | Self::Rebase) if schemas.are_several() => {
                return self.all(schemas).await;
            }
            (None, _) => schemas.only()?,
        };
        self.one(one).await
    }

    /// One that fails does not keep the others from it.
    async fn all<DB: Dialect>(&self, schemas: &Schemas<DB>) -> Result<(), Failure> {
        let mut failed = Vec::new();
        for schema in schemas.all() {
            if let Err(error) = self.one(schema).await {
                failed.push(format!("{}{error}", schema.prefix));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
    }

    async fn one<DB: Dialect>(&self, Schema { store, prefix, .. }: &Schema<DB>) -> Result<(), Failure> {
        match self {
            Self::Purge(purge) => {
                store.check().await?;
                purge.run(store, prefix).await
            }
            Self::Retire(name) => {
                store.check().await?;
                let retired = store.retire(name).await?;
                match retired.cursor {
                    true => println!("{prefix}{name:?} is forgotten, and the log is not kept for it"),
                    false => println!("{prefix}there is no cursor of {name:?}"),
                }
                println!("{prefix}{} messages that were put aside are forgotten", retired.parked);
                Ok(())
            }
            Self::Redact(key) => {
                store.check().await?;
                let redacted = store.redact(key).await?;
                println!("{prefix}{} messages of the log are blank", redacted.outbox);
                println!("{prefix}{} that wait for their time are", redacted.delayed);
                println!("{prefix}{} that a consumer has put aside are", redacted.parked_deliveries);
                println!("{prefix}{} dead letters are", redacted.dead_letters);
                println!("{prefix}copies in brokers, backups and tables of handlers are not");
                Ok(())
            }
            Self::OpenBreaker { destination, reason } => Ok(store.open_breaker(destination, reason).await?),
            Self::CloseBreaker(destination) => Ok(store.close_breaker(destination).await?),
            Self::Rebase => {
                let rebased = store.rebase().await?;
                println!("{prefix}{} messages have transaction ids of this server", rebased.messages);
                Ok(())
            }
        }
    }
}

impl PurgeArguments {
    async fn run<DB: Dialect>(&self, store: &Store<DB>, prefix: &str) -> Result<(), Failure> {
        let (on_max_lag, became) = match self.on_max_lag {
            Lagging::Block => (OnMaxLag::Block, "everything that it has not settled is kept"),
            Lagging::Detach => (OnMaxLag::Detach, "it is detached"),
        };
        let mut retention = Retention::new(self.keep);
        if let Some(max_lag) = self.max_lag {
            retention = retention.max_lag(max_lag, on_max_lag);
        }
        let purged = store.purge(retention).await?;
        println!("{prefix}{} messages deleted", purged.messages);
        match store.purge_operations().await? {
            0 => {}
            keys => println!("{prefix}{keys} idempotency keys that had expired deleted"),
        }
        match store.purge_receipts().await? {
            0 => {}
            receipts => println!("{prefix}{receipts} receipts of webhooks that had expired deleted"),
        }
        for reader in purged.lagging {
            println!("{prefix}{reader:?} is too far behind: {became}");
        }
        if let Some(reader) = purged.held_by {
            println!("{prefix}{reader:?} is furthest behind and keeps messages that are old enough to go");
        }
        Ok(())
    }
}
