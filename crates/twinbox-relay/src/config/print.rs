//! Prints the values in force, each with its origin.
use super::{error::ConfigError, file::Config, load::ENVIRONMENT_PREFIX};
use std::{fmt::Write as _, fs, path::Path};
use toml::{Table, Value};
use twinbox_core::endpoint::masked_url;

impl Config {
    /// Returns every value as a line of TOML with its origin: the environment, the file, or the default.
    ///
    /// Secrets in URLs are masked.
    ///
    /// # Errors
    ///
    /// The configuration cannot be [loaded](Self::load).
    pub fn print(
        path: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<String, ConfigError> {
        let environment: Vec<_> = environment.collect();
        let config = Self::load(path, environment.iter().cloned())?;
        let file: Table = path
            .and_then(|path| fs::read_to_string(path).ok())
            .and_then(|text| toml::from_str(&text).ok())
            .unwrap_or_default();
        let all = Table::try_from(&config).map_err(|e| ConfigError::new(e.to_string()))?;
        let mut out = String::new();
        for_each_value(&all, &mut Vec::new(), &mut |path, value| {
            let variable = format!("{ENVIRONMENT_PREFIX}{}", path.join("__").to_ascii_uppercase());
            let origin = if environment.iter().any(|(name, _)| name.eq_ignore_ascii_case(&variable)) {
                variable
            } else if contains(&file, path) {
                "file".to_owned()
            } else {
                "default".to_owned()
            };
            let is_url = path.last().is_some_and(|name| name.ends_with("url"));
            let value = if is_url {
                Value::String(masked_url(value.as_str().unwrap_or_default()))
            } else {
                value.clone()
            };
            let _ = writeln!(out, "{} = {value}  # {origin}", path.join("."));
        });
        Ok(out)
    }
}

/// Calls `visit` with the path and value of every entry that is not a table.
fn for_each_value<'t>(table: &'t Table, path: &mut Vec<&'t str>, visit: &mut impl FnMut(&[&str], &Value)) {
    for (name, value) in table {
        path.push(name);
        match value {
            Value::Table(inner) => for_each_value(inner, path, visit),
            value => visit(path, value),
        }
        path.pop();
    }
}

fn contains(table: &Table, path: &[&str]) -> bool {
    match path {
        [] => false,
        [name] => table.contains_key(*name),
        [name, rest @ ..] => {
            table.get(*name).and_then(Value::as_table).is_some_and(|inner| contains(inner, rest))
        }
    }
}
