//! Triggers, rules and row-level security of the tables, compared with the migrations.
use crate::{
    Ops,
    deviation::{Deviation, DeviationKind as Kind, place, quoted, shown},
};
use std::collections::HashSet;
use twinbox_sql::{
    Dialect, Error,
    engine::{TextColumns, tables, triggers},
};

/// Where a trigger of Postgres does not run, or for a replica alone.
const OFF: [&str; 2] = ["D", "R"];
/// A trigger of Postgres that calls a function outside of the schema.
const FOREIGN: &str = "foreign";

impl<DB: Dialect> Ops<DB> {
    /// Returns the triggers of the migrations that are missing or disabled, and what else acts on the tables:
    /// unknown triggers, rules, and row-level security. Sorted by kind. What a trigger or its function does
    /// is not compared with the migrations, nor are rules of columns.
    ///
    /// MySQL shows triggers only to an account with the right `TRIGGER`, such as the owner of the tables.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn altered_tables(&self) -> Result<Vec<Deviation>, Error> {
        let namespace = &self.engine.catalog().namespace;
        let (own, made) = (tables::<DB>(namespace), triggers::<DB>(namespace));
        let has_schema = DB::table(namespace, "").ends_with('.');
        let bind = namespace.clone();
        let rows = self.engine.fetch_all(&self.engine.sql().setup.guards, |query| query.bind(bind)).await?;
        let (mut all, mut kept) = (Vec::new(), HashSet::new());
        let mut sees_all = DB::NAME != "MySQL";
        for row in &rows {
            let (word, state) = (row.text("kind")?, row.text("state")?);
            let trigger = (row.text("name")?, row.text("object")?);
            sees_all |= word == "sees";
            // The prefix of another store may begin with that of this one.
            if word == "sees" || !has_schema && !own.contains(&trigger.1) {
                continue;
            }
            let (name, table) = (shown::<DB>(&trigger.0), shown::<DB>(&trigger.1));
            let (its_name, place) = (quoted::<DB>(&trigger.0), place::<DB>(namespace, &trigger.1));
            // Where triggers have a schema, they have their own names in each table.
            let on = if has_schema { format!(" ON {place}") } else { String::new() };
            let (kind, found, remedy) = match word.as_str() {
                "trigger" if state != FOREIGN && made.contains(&trigger) => {
                    kept.insert(trigger);
                    if !OFF.contains(&state.as_str()) {
                        continue;
                    }
                    (
                        Kind::Trigger,
                        format!("{name} of {table} is disabled"),
                        format!("ALTER TABLE {place} ENABLE TRIGGER {its_name}"),
                    )
                }
                "trigger" => (
                    Kind::UnknownTrigger,
                    format!("{name} runs on changes of {table}"),
                    format!("DROP TRIGGER {its_name}{on}"),
                ),
                "rule" => (
                    Kind::Rule,
                    format!("{name} changes statements on {table}"),
                    format!("DROP RULE {its_name}{on}"),
                ),
                "policy" => (
                    Kind::RowSecurity,
                    format!("{name} chooses rows of {table}"),
                    format!("DROP POLICY {its_name}{on}"),
                ),
                _ => (
                    Kind::RowSecurity,
                    format!("it hides rows of {table}"),
                    format!("ALTER TABLE {place} NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY"),
                ),
            };
            all.push(Deviation { kind, found, remedy });
        }
        if sees_all {
            let missing = made.into_iter().filter(|trigger| !kept.contains(trigger));
            all.extend(missing.map(|(name, table)| Deviation {
                kind: Kind::Trigger,
                found: format!("{name} of {table} is missing"),
                remedy: "make it as `twinbox schemas print` has it".to_owned(),
            }));
        } else {
            let found = "triggers cannot all be read by this connection".to_owned();
            let remedy = "connect as the owner of the tables".to_owned();
            all.push(Deviation { kind: Kind::NotVisible, found, remedy });
        }
        all.sort_by_key(|one| one.kind);
        Ok(all)
    }
}
