//! From a file and the environment to a configuration, or to what has to change.
use super::Config;
use std::{fmt, fs, path::Path};
use toml::{Table, Value};

/// What starts the name of an environment variable that sets a value; `__` separates the levels.
pub const ENVIRONMENT_PREFIX: &str = "TWINBOX_RELAY__";

/// How alike a wrong name and a known one have to be for a suggestion, from 0 to 1.
const ALIKE: f64 = 0.75;

impl Config {
    /// Reads a file, if there is one, and lays the environment over it.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or says something that is not known; names the line where there
    /// is one.
    pub fn load(
        path: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let name = path.map_or(ENVIRONMENT_PREFIX.to_owned() + "…", |path| path.display().to_string());
        let text = match path {
            Some(path) => fs::read_to_string(path).map_err(|e| ConfigError(format!("{name}: {e}")))?,
            None => String::new(),
        };
        let mut set: Vec<_> = environment.filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)).collect();
        if set.is_empty() && path.is_none() {
            let what =
                "nothing says what to relay: name a file with `--config`, or set TWINBOX_RELAY__… variables";
            return Err(ConfigError(what.to_owned()));
        }
        if set.is_empty() {
            let config: Self = toml::from_str(&text).map_err(|e| explain(&name, &text, &e))?;
            return config.with_names_resolved(&name, &text);
        }
        set.sort();
        let mut table: Table = toml::from_str(&text).map_err(|e| explain(&name, &text, &e))?;
        for (variable, value) in set {
            let path = variable[ENVIRONMENT_PREFIX.len()..].to_ascii_lowercase();
            lay(&mut table, &path.split("__").collect::<Vec<_>>(), value)
                .map_err(|problem| ConfigError(format!("{variable}: {problem}")))?;
        }
        let name = name + ", the environment laid over it";
        let config: Self = table.try_into().map_err(|e| explain(&name, &text, &e))?;
        config.with_names_resolved(&name, &text)
    }

    fn with_names_resolved(self, file: &str, text: &str) -> Result<Self, ConfigError> {
        self.with_schemas_in_order(file, text)?.with_known_retries(file, text)
    }
}

pub(super) fn lay(table: &mut Table, path: &[&str], value: String) -> Result<(), &'static str> {
    match path {
        [] => Err("names no value"),
        [name] => {
            let plain =
                value.parse::<i64>().map(Value::from).or_else(|_| value.parse::<bool>().map(Value::from));
            table.insert((*name).to_owned(), plain.unwrap_or(Value::String(value)));
            Ok(())
        }
        [name, rest @ ..] => match table.entry(*name).or_insert_with(|| Table::new().into()) {
            Value::Table(inner) => lay(inner, rest, value),
            _ => Err("is below a value that is no table"),
        },
    }
}

/// A secret that is written down, or is in a file.
///
/// # Errors
/// Both or neither are given, or the file cannot be read.
pub fn secret(what: &str, value: Option<&str>, file: Option<&Path>) -> Result<String, ConfigError> {
    match (value, file) {
        (Some(value), None) => Ok(value.to_owned()),
        (None, Some(file)) => {
            let read = fs::read_to_string(file);
            let text = read.map_err(|e| ConfigError(format!("{what}_file {}: {e}", file.display())))?;
            Ok(text.trim_end().to_owned())
        }
        _ => Err(ConfigError(format!("set one of `{what}` and `{what}_file`"))),
    }
}

/// Names the line, and what was probably meant.
fn explain(name: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let message = error.message();
    let mut quoted = message.split(['`', '"']).skip(1).step_by(2);
    let wrong = quoted.next().filter(|_| !message.starts_with("missing"));
    // Below a destination the error only knows where its table starts.
    let written = wrong.and_then(|wrong| text.lines().position(|line| says(line, wrong)));
    let table = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count());
    let line = written.or(table).map_or(String::new(), |index| format!(" line {}:", index + 1));
    let unknown = wrong.filter(|_| message.starts_with("unknown"));
    let meant = unknown.map_or(String::new(), |wrong| meant(wrong, quoted));
    ConfigError(format!("{name}:{line} {message}{meant}"))
}

/// A question, if one of the known names is like the wrong one.
pub(super) fn meant<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    let alike = known.map(|known| (strsim::jaro_winkler(wrong, known), known));
    let meant = alike.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness >= ALIKE);
    meant.map_or(String::new(), |(_, known)| format!("\ndid you mean `{known}`?"))
}

/// The line below the head of a table that sets this key to this value, else that of the head. Empty without one.
pub(super) fn line_of(text: &str, table: &str, key: &str, value: &str) -> String {
    let head = format!("[{table}]");
    let Some(start) = text.lines().position(|line| line.trim_start().starts_with(&head)) else {
        return String::new();
    };
    let below = text.lines().skip(start + 1).take_while(|line| !line.trim_start().starts_with('['));
    let sets =
        |line: &str| line.split('=').next().is_some_and(|name| name.trim() == key) && says(line, value);
    let line = below.map(sets).position(|sets| sets).map_or(start, |below| start + 1 + below);
    format!(" line {}:", line + 1)
}

/// Whether a line sets this key, or something to this value.
fn says(line: &str, text: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else { return false };
    key.trim() == text || value.split(['"', '\'']).any(|value| value == text)
}

/// What has to change in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end())
    }
}

impl std::error::Error for ConfigError {}
