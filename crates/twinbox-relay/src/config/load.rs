//! Reads the configuration from a file and from the environment.
use super::{
    error::ConfigError,
    file::Config,
    hint::{did_you_mean, mentions},
};
use std::{fs, path::Path};
use toml::{Table, Value};

/// The prefix of the environment variables that set a value. `__` separates the levels.
pub const ENVIRONMENT_PREFIX: &str = "TWINBOX_RELAY__";

impl Config {
    /// Reads the configuration from a file, if there is one, and from environment variables, which override
    /// it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not TOML, or has an unknown name or value. The error names the line if it
    /// is known.
    pub fn load(
        path: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let name = path.map_or(ENVIRONMENT_PREFIX.to_owned() + "…", |path| path.display().to_string());
        let text = match path {
            Some(path) => fs::read_to_string(path)
                .map_err(|e| ConfigError::new(format!("cannot read the file {name}: {e}")))?,
            None => String::new(),
        };
        let mut variables: Vec<_> =
            environment.filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)).collect();
        if variables.is_empty() && path.is_none() {
            return Err(ConfigError::new(
                "there is no configuration: name a file with `--config`, or set TWINBOX_RELAY__… variables",
            ));
        }
        if variables.is_empty() {
            let config: Self = toml::from_str(&text).map_err(|e| explain(&name, &text, &e))?;
            return config.check_names(&name, &text);
        }
        variables.sort();
        let mut table: Table = toml::from_str(&text).map_err(|e| explain(&name, &text, &e))?;
        for (variable, value) in variables {
            let path = variable[ENVIRONMENT_PREFIX.len()..].to_ascii_lowercase();
            insert(&mut table, &path.split("__").collect::<Vec<_>>(), value)
                .map_err(|problem| ConfigError::new(format!("{variable}: {problem}")))?;
        }
        let name = name + " with the environment";
        let config: Self = table.try_into().map_err(|e| explain(&name, &text, &e))?;
        config.check_names(&name, &text)
    }

    fn check_names(self, file: &str, text: &str) -> Result<Self, ConfigError> {
        self.check_outboxes(file, text)?;
        self.check_retries(file, text)?;
        self.check_vendors(file, text)?;
        Ok(self)
    }
}

fn insert(table: &mut Table, path: &[&str], value: String) -> Result<(), &'static str> {
    match path {
        [] => Err("the variable names no value"),
        [name] => {
            let parsed =
                value.parse::<i64>().map(Value::from).or_else(|_| value.parse::<bool>().map(Value::from));
            table.insert((*name).to_owned(), parsed.unwrap_or(Value::String(value)));
            Ok(())
        }
        [name, rest @ ..] => match table.entry(*name).or_insert_with(|| Table::new().into()) {
            Value::Table(inner) => insert(inner, rest, value),
            _ => Err("the variable is below a value that is not a table"),
        },
    }
}

/// Returns a secret that is given as a value or in a file. `what` is the key of the value.
///
/// # Errors
///
/// Both or neither are given, or the file cannot be read.
pub fn secret(what: &str, value: Option<&str>, file: Option<&Path>) -> Result<String, ConfigError> {
    match (value, file) {
        (Some(value), None) => Ok(value.to_owned()),
        (None, Some(file)) => {
            let text = fs::read_to_string(file).map_err(|e| {
                ConfigError::new(format!("cannot read `{what}_file` {}: {e}", file.display()))
            })?;
            Ok(text.trim_end().to_owned())
        }
        _ => Err(ConfigError::new(format!("set one of `{what}` and `{what}_file`"))),
    }
}

/// Adds the line, and the name that was probably meant.
fn explain(name: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let message = error.message();
    let mut quoted = message.split(['`', '"']).skip(1).step_by(2);
    let wrong = quoted.next().filter(|_| !message.starts_with("missing"));
    // Below a destination the error only knows where its table starts.
    let written = wrong.and_then(|wrong| text.lines().position(|line| mentions(line, wrong)));
    let table = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count());
    let line = written.or(table).map_or(String::new(), |index| format!(" line {}:", index + 1));
    let unknown = wrong.filter(|_| message.starts_with("unknown"));
    let hint = unknown.map_or(String::new(), |wrong| did_you_mean(wrong, quoted));
    ConfigError::new(format!("{name}:{line} {message}{hint}"))
}
