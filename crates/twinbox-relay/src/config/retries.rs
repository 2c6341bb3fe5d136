//! The retry policies of the destinations.
use super::{
    error::ConfigError,
    file::Config,
    hint::{did_you_mean, line_of},
};
use twinbox_core::RetryPolicy;

/// The retry policies that need no table.
const BUILT_IN: [&str; 2] = ["vendor", "client"];

impl Config {
    pub(crate) fn retry_policy(&self, id: &str) -> Result<RetryPolicy, ConfigError> {
        self.named_retry_policy(&format!("destination {id:?}"), self.destinations[id].common().retry)
    }

    /// Returns the retry policy that `whose`, a destination or a vendor, names.
    pub(super) fn named_retry_policy(&self, whose: &str, name: &str) -> Result<RetryPolicy, ConfigError> {
        match name {
            "vendor" => Ok(RetryPolicy::vendor()),
            "client" => Ok(RetryPolicy::client()),
            _ => self.retry.get(name).map(|&retry| retry.into()).ok_or_else(|| {
                let known = BUILT_IN.into_iter().chain(self.retry.keys().map(String::as_str));
                ConfigError::new(format!(
                    "{whose} has the unknown retry policy {name:?}: write `vendor` or `client`, \
                     or add a table `[retry.{name}]`{}",
                    did_you_mean(name, known)
                ))
            }),
        }
    }

    /// Checks that the retry policy of each destination exists, and that no policy of the file has the name
    /// of a built-in one, which would be used instead.
    pub(super) fn check_retries(&self, file: &str, text: &str) -> Result<(), ConfigError> {
        if let Some(name) = BUILT_IN.into_iter().find(|name| self.retry.contains_key(*name)) {
            let line = line_of(text, &format!("retry.{name}"), "", "");
            let what = format!("`{name}` is a retry policy already: give `[retry.{name}]` another name");
            return Err(ConfigError::new(format!("{file}:{line} {what}")));
        }
        for (id, destination) in &self.destinations {
            if let Err(error) = self.retry_policy(id) {
                let line = line_of(text, &format!("destinations.{id}"), "retry", destination.common().retry);
                return Err(ConfigError::new(format!("{file}:{line} {error}")));
            }
        }
        Ok(())
    }
}
