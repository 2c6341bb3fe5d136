//! The schemas of the configuration file.
use super::{
    error::ConfigError,
    file::Config,
    hint::{did_you_mean, line_of},
};

impl Config {
    /// Returns each namespace with its service. That of `[database]` comes first.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (&str, &str)> {
        let main = (&*self.database.namespace, &*self.database.service);
        let others = self.schemas.iter().map(|(name, schema)| (&**name, &*schema.service));
        std::iter::once(main).chain(others)
    }

    /// Returns the namespace of the outbox that a destination of the file reads.
    pub(crate) fn namespace_of(&self, id: &str) -> &str {
        self.destinations[id].common().schema.unwrap_or(&self.database.namespace)
    }

    /// Checks that each schema is unique and has a service of its own, and that each destination reads one of
    /// them.
    pub(super) fn check_schemas(&self, file: &str, text: &str) -> Result<(), ConfigError> {
        let wrong = |table: &str, key: &str, value: &str, what: String| {
            let line = line_of(text, table, key, value);
            Err(ConfigError::new(format!("{file}:{line} {what}")))
        };
        for (n, (name, service)) in self.namespaces().enumerate().skip(1) {
            let table = format!("schemas.{name}");
            if name == self.database.namespace {
                let what = format!(
                    "`[{table}]` is the namespace of `[database]`, which the relay serves already: \
                     remove the table, or give one of them another name"
                );
                return wrong(&table, "", "", what);
            }
            if let Some((other, _)) = self.namespaces().take(n).find(|(_, other)| *other == service) {
                // The service is the source of its messages. Two sources of one name would share message ids.
                let what = format!(
                    "the schemas {other:?} and {name:?} both belong to the service {service:?}: give each a \
                     service of its own"
                );
                return wrong(&table, "service", service, what);
            }
        }
        for id in self.destinations.keys() {
            let name = self.namespace_of(id);
            if let Err(error) = self.check_namespace(&format!("destination {id:?}"), name) {
                return wrong(&format!("destinations.{id}"), "schema", name, error.to_string());
            }
        }
        Ok(())
    }

    /// Checks that the namespace of `reader`, a destination or a vendor, is in the file.
    pub(super) fn check_namespace(&self, reader: &str, name: &str) -> Result<(), ConfigError> {
        let known = || self.namespaces().map(|(name, _)| name);
        if known().any(|known| known == name) {
            return Ok(());
        }
        let all = known().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
        Err(ConfigError::new(format!(
            "{reader} reads the schema {name:?}, which is not in the file: write {all}, or add a table \
             `[schemas.{name}]`{}",
            did_you_mean(name, known())
        )))
    }
}
