//! A vendor of the configuration file.
use super::{error::ConfigError, hint::did_you_mean, value::Duration};
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};
use twinbox_effects::{Recovery, VendorProfile, profiles};

/// A section `[vendors.NAME]`: a vendor of side effects, which is called by HTTP.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vendor {
    /// The name of a profile, such as `stripe_v1`, or `custom` for a vendor without keys.
    pub profile: String,
    /// The URL that the targets of effects follow.
    pub url: String,
    /// Whether requests to another machine may be without TLS.
    #[serde(default)]
    pub allow_plain: bool,
    /// The header of the credential.
    #[serde(default = "default_credential_header")]
    pub credential_header: String,
    /// A file that holds the credential, such as `Bearer …`. Default: none is sent.
    pub credential_file: Option<PathBuf>,
    /// The way when it is not known whether the vendor acted. Default: as the profile says.
    pub in_doubt: Option<InDoubt>,
    /// The outbox, by the name of its table `[schemas.NAME]` or `[databases.NAME]`. Default: that of
    /// `[database]`.
    #[serde(alias = "database")]
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

/// Without the URL, which may hold a password.
impl fmt::Debug for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vendor").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// The way when it is not known whether a vendor acted.
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
