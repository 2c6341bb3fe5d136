//! The outboxes of the configuration file: that of `[database]`, and those of further schemas and databases.
use super::{
    error::ConfigError,
    file::{Config, Database},
    hint::{did_you_mean, line_of},
};

/// An outbox of the configuration file.
#[derive(Clone, Copy)]
pub(crate) struct Outbox<'c> {
    /// The name by which destinations and vendors choose it.
    pub(crate) name: &'c str,
    pub(crate) service: &'c str,
    pub(crate) namespace: &'c str,
    pub(crate) database: &'c Database,
    pub(crate) place: Place,
}

/// The table of the file that describes an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// `[database]`.
    Main,
    /// `[schemas.NAME]`.
    Schema,
    /// `[databases.NAME]`.
    Database,
}

impl Outbox<'_> {
    fn table(&self) -> String {
        match self.place {
            Place::Main => "database".to_owned(),
            Place::Schema => format!("schemas.{}", self.name),
            Place::Database => format!("databases.{}", self.name),
        }
    }
}

impl Config {
    /// Returns each outbox of the file. That of `[database]` comes first.
    pub(crate) fn outboxes(&self) -> impl Iterator<Item = Outbox<'_>> {
        let main = &self.database;
        let (name, service) = (&*main.namespace, &*main.service);
        let first = Outbox { name, service, namespace: name, database: main, place: Place::Main };
        let schemas = self.schemas.iter().map(|(name, schema)| {
            let service = &schema.service;
            Outbox { name, service, namespace: name, database: main, place: Place::Schema }
        });
        let databases = self.databases.iter().map(|(name, database)| {
            let (service, namespace) = (&*database.service, &*database.namespace);
            Outbox { name, service, namespace, database, place: Place::Database }
        });
        std::iter::once(first).chain(schemas).chain(databases)
    }

    /// Returns the name of the outbox that a destination of the file reads.
    pub(crate) fn outbox_of(&self, id: &str) -> &str {
        self.destinations[id].common().schema.unwrap_or(&self.database.namespace)
    }

    /// Checks that each outbox has a name and a service of its own, and that each destination reads one of
    /// them.
    pub(super) fn check_outboxes(&self, file: &str, text: &str) -> Result<(), ConfigError> {
        let wrong = |table: &str, key: &str, value: &str, what: String| {
            let line = line_of(text, table, key, value);
            Err(ConfigError::new(format!("{file}:{line} {what}")))
        };
        for (n, outbox) in self.outboxes().enumerate().skip(1) {
            let (Outbox { name, service, .. }, table) = (outbox, outbox.table());
            if let Some(other) = self.outboxes().take(n).find(|other| other.name == name) {
                let what = format!(
                    "`[{table}]` has the name of the outbox of `[{}]`, which the relay serves already: \
                     remove the table, or give one of them another name",
                    other.table()
                );
                return wrong(&table, "", "", what);
            }
            if let Some(other) = self.outboxes().take(n).find(|other| other.service == service) {
                // The service is the source of its messages. Two sources of one name would share message ids.
                let what = format!(
                    "`[{}]` and `[{table}]` both belong to the service {service:?}: give each a service of \
                     its own, because message ids are derived from it",
                    other.table()
                );
                return wrong(&table, "service", service, what);
            }
        }
        for id in self.destinations.keys() {
            let name = self.outbox_of(id);
            if let Err(error) = self.check_outbox(&format!("destination {id:?}"), name) {
                return wrong(&format!("destinations.{id}"), "schema", name, error.to_string());
            }
        }
        Ok(())
    }

    /// Checks that the outbox of `reader`, a destination or a vendor, is in the file.
    pub(super) fn check_outbox(&self, reader: &str, name: &str) -> Result<(), ConfigError> {
        let known = || self.outboxes().map(|outbox| outbox.name);
        if known().any(|known| known == name) {
            return Ok(());
        }
        let all = known().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
        Err(ConfigError::new(format!(
            "{reader} reads the outbox {name:?}, which is not in the file: write {all}, or add a table \
             `[schemas.{name}]` or `[databases.{name}]`{}",
            did_you_mean(name, known())
        )))
    }
}
