//! The vendors of the configuration file.
use super::{
    error::ConfigError,
    file::Config,
    hint::{did_you_mean, line_of},
    value::Duration,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use twinbox_core::RetryPolicy;
use twinbox_effects::{Recovery, VendorProfile, profiles};

/// A section `[vendors.NAME]`: a vendor of side effects, which is called by HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vendor {
    /// The name of a profile, such as `stripe_v1`, or `custom` for a vendor without keys.
    pub profile: String,
    /// The URL that the targets of effects follow.
    pub url: String,
    /// The header of the credential.
    #[serde(default = "default_credential_header")]
    pub credential_header: String,
    /// A file that holds the credential, such as `Bearer …`. Default: none is sent.
    pub credential_file: Option<PathBuf>,
    /// What happens when it is not known whether the vendor acted. Default: as the profile says.
    pub in_doubt: Option<InDoubt>,
    /// The namespace of the effects. Default: that of `[database]`.
    pub schema: Option<String>,
    /// The most sends at a time.
    #[serde(default = "default_in_flight")]
    pub in_flight: usize,
    /// How long a send may take.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// `vendor`, `client` or the name of a table `[retry.NAME]`.
    #[serde(default = "default_retry")]
    pub retry: String,
}

/// What happens when it is not known whether a vendor acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubt {
    /// An operator resolves the effect.
    Operator,
    /// The effect is sent again.
    AtLeastOnce,
    /// The effect is never sent again.
    AtMostOnce,
}

impl From<InDoubt> for Recovery {
    fn from(in_doubt: InDoubt) -> Self {
        match in_doubt {
            InDoubt::Operator => Self::Operator,
            InDoubt::AtLeastOnce => Self::AtLeastOnce,
            InDoubt::AtMostOnce => Self::AtMostOnce,
        }
    }
}

const CUSTOM: VendorProfile = VendorProfile::new("custom", Recovery::Operator);

impl Vendor {
    /// Returns the profile, with the way of recovery that the file says.
    pub(crate) fn profile(&self) -> Result<VendorProfile, ConfigError> {
        let known = || profiles::ALL.into_iter().chain([&CUSTOM]);
        let Some(profile) = known().find(|profile| profile.name == self.profile) else {
            let names = known().map(|profile| profile.name);
            let all = names.clone().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let hint = did_you_mean(&self.profile, names);
            return Err(ConfigError::new(format!(
                "there is no profile {:?}: write {all}{hint}",
                self.profile
            )));
        };
        let profile = profile.clone();
        match (self.in_doubt, profile.recovery) {
            (Some(in_doubt), _) => Ok(profile.recovery(in_doubt.into())),
            (None, Recovery::LookUp { .. }) => Err(ConfigError::new(format!(
                "the profile {:?} looks effects up, which only a program of yours can do: \
                 set `in_doubt`, or run a dispatcher of your own",
                self.profile
            ))),
            (None, _) => Ok(profile),
        }
    }
}

impl Config {
    pub(crate) fn vendor_retries(&self, name: &str) -> Result<RetryPolicy, ConfigError> {
        self.named_retry_policy(&format!("vendor {name:?}"), &self.vendors[name].retry)
    }

    /// Returns the namespace of the effects that a vendor of the file gets.
    pub(crate) fn namespace_of_vendor(&self, name: &str) -> &str {
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
            self.check_namespace(&format!("vendor {name:?}"), self.namespace_of_vendor(name))
                .map_err(|e| at("schema", self.namespace_of_vendor(name), e.to_string()))?;
        }
        Ok(())
    }
}

fn default_credential_header() -> String {
    "authorization".to_owned()
}

fn default_in_flight() -> usize {
    64
}

fn default_timeout() -> Duration {
    Duration(std::time::Duration::from_secs(30))
}

fn default_retry() -> String {
    "vendor".to_owned()
}
