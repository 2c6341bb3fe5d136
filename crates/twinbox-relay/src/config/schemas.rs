//! Whose outboxes the file names.
use super::{
    Config, ConfigError,
    load::{line_of, meant},
};

impl Config {
    /// Each namespace with its service; that of `[database]` comes first.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (&str, &str)> {
        let main = (&*self.database.namespace, &*self.database.service);
        let others = self.schemas.iter().map(|(name, schema)| (&**name, &*schema.service));
        std::iter::once(main).chain(others)
    }

    /// The namespace whose outbox goes to a destination of the file.
    pub(crate) fn namespace_of(&self, id: &str) -> &str {
        self.destinations[id].common().schema.unwrap_or(&self.database.namespace)
    }

    /// Each schema is there once with a service of its own, and each destination reads one of them.
    pub(super) fn with_schemas_in_order(self, file: &str, text: &str) -> Result<Self, ConfigError> {
        let wrong = |table: &str, key: &str, value: &str, what: String| {
            let line = line_of(text, table, key, value);
            Err(ConfigError(format!("{file}:{line} {what}")))
        };
        for (n, (name, service)) in self.namespaces().enumerate().skip(1) {
            let table = format!("schemas.{name}");
            if name == self.database.namespace {
                let what = format!(
                    "`[{table}]` is the namespace of `[database]`, whose tables are served already: remove it, \
                     or give one of them another name"
                );
                return wrong(&table, "", "", what);
            }
            if let Some((other, _)) = self.namespaces().take(n).find(|(_, other)| *other == service) {
                // The service is the source of its messages, by which a broker tells those of one id apart.
                let what = format!(
                    "the schemas {other:?} and {name:?} both belong to the service {service:?}: give each a \
                     service of its own"
                );
                return wrong(&table, "service", service, what);
            }
        }
        for id in self.destinations.keys() {
            let name = self.namespace_of(id);
            let known = || self.namespaces().map(|(name, _)| name);
            if !known().any(|known| known == name) {
                let all = known().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
                let what = format!(
                    "destination {id:?} reads the schema {name:?}, which is not in the file: write {all}, or add a \
                     table `[schemas.{name}]`{}",
                    meant(name, known())
                );
                return wrong(&format!("destinations.{id}"), "schema", name, what);
            }
        }
        Ok(self)
    }
}
