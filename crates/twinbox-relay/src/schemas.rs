//! The stores that one run of the program serves.
use crate::{
    config::{Config, ConfigError},
    program::Failure,
};
use sqlx::Pool;
use twinbox_sql::{Dialect, Store, StoreOptions};

/// One of them, and how it is called.
pub(crate) struct Schema<DB: Dialect> {
    pub(crate) name: String,
    pub(crate) store: Store<DB>,
    /// `database`, or with `[schemas]` which of them.
    pub(crate) title: String,
    /// What starts a line about it: nothing if there is no other.
    pub(crate) prefix: String,
}

/// All that the file names, that of `[database]` first.
pub(crate) struct Schemas<DB: Dialect>(Vec<Schema<DB>>);

impl<DB: Dialect> Schemas<DB> {
    pub(crate) fn new(pool: &Pool<DB>, config: &Config) -> Result<Self, Failure> {
        let one = |(n, (name, service)): (usize, (&str, &str))| {
            let options = StoreOptions::new().namespace(name).pooler(config.database.pooler);
            let several = !config.schemas.is_empty();
            Ok(Schema {
                name: name.to_owned(),
                store: Store::with_options(pool.clone(), service, options)?,
                title: if n == 0 { "database".to_owned() } else { format!("schema {name}") },
                prefix: if several { format!("{name}: ") } else { String::new() },
            })
        };
        config.namespaces().enumerate().map(one).collect::<Result<_, Failure>>().map(Self)
    }

    pub(crate) fn all(&self) -> &[Schema<DB>] {
        &self.0
    }

    /// Whether what is said has to say of which.
    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Of a name that the configuration has, or somebody typed.
    pub(crate) fn named(&self, name: &str) -> Result<&Schema<DB>, ConfigError> {
        let found = self.0.iter().find(|schema| schema.name == name);
        found.ok_or_else(|| {
            ConfigError(format!("there is no schema {name:?} in the file: it has {}", self.names()))
        })
    }

    /// The one that is meant if nobody says which.
    pub(crate) fn only(&self) -> Result<&Schema<DB>, ConfigError> {
        match &*self.0 {
            [schema] => Ok(schema),
            _ => Err(ConfigError(format!(
                "say in which schema, with `--schema`: the file has {}",
                self.names()
            ))),
        }
    }

    fn names(&self) -> String {
        self.0.iter().map(|schema| format!("`{}`", schema.name)).collect::<Vec<_>>().join(", ")
    }
}
