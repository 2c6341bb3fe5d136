//! The outboxes that one run of the program serves, each with its store.
use crate::{
    config::{Config, ConfigError, Outbox, Place},
    failure::Failure,
    pools::Pools,
};
use std::{collections::BTreeMap, time::Duration};
use twinbox_sql::{Dialect, Store, StoreOptions};

/// A schema with its store.
pub(crate) struct Schema<DB: Dialect> {
    pub(crate) name: String,
    pub(crate) store: Store<DB>,
    /// The table of the file in words: `database`, `schema NAME` or `database NAME`.
    pub(crate) title: String,
    /// The prefix of printed lines about this schema. Empty if there is only one.
    pub(crate) prefix: String,
    /// The name of its table `[databases.NAME]`. `None`: it is in the database of `[database]`.
    own_database: Option<String>,
    /// How often its database is asked for new work while there is none.
    pub(crate) idle_poll: Duration,
}

/// The schemas of the configuration. That of `[database]` comes first.
pub(crate) struct Schemas<DB: Dialect>(Vec<Schema<DB>>);

impl<DB: Dialect> Schemas<DB> {
    pub(crate) fn new(pools: &Pools<DB>, config: &Config) -> Result<Self, Failure> {
        let are_several = config.outboxes().nth(1).is_some();
        let schema = |Outbox { name, service, namespace, database, place }| {
            let pool = pools.others.get(name).filter(|_| place == Place::Database).unwrap_or(&pools.main);
            let options = StoreOptions::new().namespace(namespace).pooler(database.pooler);
            Ok(Schema {
                name: name.to_owned(),
                store: Store::with_options(pool.clone(), service, options)?,
                title: match place {
                    Place::Main => "database".to_owned(),
                    Place::Schema => format!("schema {name}"),
                    Place::Database => format!("database {name}"),
                },
                prefix: if are_several { format!("{name}: ") } else { String::new() },
                own_database: (place == Place::Database).then(|| name.to_owned()),
                idle_poll: database.idle_poll.0,
            })
        };
        config.outboxes().map(schema).collect::<Result<_, Failure>>().map(Self)
    }

    pub(crate) fn all(&self) -> &[Schema<DB>] {
        &self.0
    }

    /// The schemas that are in the database of `[database]`.
    pub(crate) fn of_main_database(&self) -> impl Iterator<Item = &Schema<DB>> {
        self.0.iter().filter(|schema| schema.own_database.is_none())
    }

    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// The schemas of each database, that of `[database]` first.
    pub(crate) fn by_database(&self) -> Vec<Vec<&Schema<DB>>> {
        let mut databases = BTreeMap::<_, Vec<_>>::new();
        self.0.iter().for_each(|schema| databases.entry(&schema.own_database).or_default().push(schema));
        databases.into_values().collect()
    }

    pub(crate) fn named(&self, name: &str) -> Result<&Schema<DB>, ConfigError> {
        let found = self.0.iter().find(|schema| schema.name == name);
        found.ok_or_else(|| {
            ConfigError::new(format!("there is no schema {name:?} in the file: it has {}", self.names()))
        })
    }

    fn names(&self) -> String {
        self.0.iter().map(|schema| format!("`{}`", schema.name)).collect::<Vec<_>>().join(", ")
    }
}
