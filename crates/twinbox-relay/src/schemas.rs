//! The schemas that one run of the program serves, each with its store.
use crate::{
    config::{Config, ConfigError},
    failure::Failure,
};
use sqlx::Pool;
use twinbox_sql::{Dialect, Store, StoreOptions};

/// A schema with its store.
pub(crate) struct Schema<DB: Dialect> {
    pub(crate) name: String,
    pub(crate) store: Store<DB>,
    /// `database` for the schema of `[database]`, else `schema NAME`.
    pub(crate) title: String,
    /// The prefix of printed lines about this schema. Empty if there is only one.
    pub(crate) prefix: String,
}

/// The schemas of the configuration. That of `[database]` comes first.
pub(crate) struct Schemas<DB: Dialect>(Vec<Schema<DB>>);

impl<DB: Dialect> Schemas<DB> {
    pub(crate) fn new(pool: &Pool<DB>, config: &Config) -> Result<Self, Failure> {
        let schema = |(n, (name, service)): (usize, (&str, &str))| {
            let options = StoreOptions::new().namespace(name).pooler(config.database.pooler);
            let are_several = !config.schemas.is_empty();
            Ok(Schema {
                name: name.to_owned(),
                store: Store::with_options(pool.clone(), service, options)?,
                title: if n == 0 { "database".to_owned() } else { format!("schema {name}") },
                prefix: if are_several { format!("{name}: ") } else { String::new() },
            })
        };
        config.namespaces().enumerate().map(schema).collect::<Result<_, Failure>>().map(Self)
    }

    pub(crate) fn all(&self) -> &[Schema<DB>] {
        &self.0
    }

    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
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
