//! Which retries the destinations ask for.
use super::{
    Config, ConfigError,
    load::{line_of, meant},
};
use twinbox_core::RetryPolicy;

impl Config {
    pub(crate) fn retry_policy(&self, id: &str) -> Result<RetryPolicy, ConfigError> {
        let name = self.destinations[id].common().retry;
        match name {
            "vendor" => Ok(RetryPolicy::vendor()),
            "client" => Ok(RetryPolicy::client()),
            _ => self.retry.get(name).map(|&retry| retry.into()).ok_or_else(|| {
                let known = ["vendor", "client"].into_iter().chain(self.retry.keys().map(String::as_str));
                ConfigError(format!(
                    "destination {id:?} asks for the retries {name:?}: write `vendor`, `client`, or add a table \
                     `[retry.{name}]`{}",
                    meant(name, known)
                ))
            }),
        }
    }

    /// Each destination asks for retries that are there.
    pub(super) fn with_known_retries(self, file: &str, text: &str) -> Result<Self, ConfigError> {
        for (id, destination) in &self.destinations {
            if let Err(ConfigError(what)) = self.retry_policy(id) {
                let line = line_of(text, &format!("destinations.{id}"), "retry", destination.common().retry);
                return Err(ConfigError(format!("{file}:{line} {what}")));
            }
        }
        Ok(self)
    }
}
