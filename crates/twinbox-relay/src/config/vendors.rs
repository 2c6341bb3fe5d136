//! The vendors of the configuration file.
use super::{error::ConfigError, file::Config, hint::line_of};
use twinbox_core::RetryPolicy;

impl Config {
    pub(crate) fn vendor_retries(&self, name: &str) -> Result<RetryPolicy, ConfigError> {
        self.named_retry_policy(&format!("vendor {name:?}"), &self.vendors[name].retry)
    }

    /// Returns the name of the outbox whose side effects a vendor of the file gets.
    pub(crate) fn outbox_of_vendor(&self, name: &str) -> &str {
        self.vendors[name].schema.as_deref().unwrap_or(&self.database.namespace)
    }

    /// Checks the profile, the retry policy and the schema of each vendor.
    pub(super) fn check_vendors(&self, file: &str, text: &str) -> Result<(), ConfigError> {
        for (name, vendor) in &self.vendors {
            let at = |key: &str, value: &str, error: String| {
                let line = line_of(text, &format!("vendors.{name}"), key, value);
                ConfigError::new(format!("{file}:{line} {error}"))
            };
            vendor.profile().map_err(|e| at("profile", &vendor.profile, format!("vendor {name:?}: {e}")))?;
            self.vendor_retries(name).map(drop).map_err(|e| at("retry", &vendor.retry, e.to_string()))?;
            self.check_outbox(&format!("vendor {name:?}"), self.outbox_of_vendor(name))
                .map_err(|e| at("schema", self.outbox_of_vendor(name), e.to_string()))?;
        }
        Ok(())
    }
}
