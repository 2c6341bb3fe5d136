//! The section about the keeper.
use super::value::Duration;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

/// The section `[keeper]`: old rows that the program deletes while it runs.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keeper {
    /// Whether the program deletes old rows.
    #[serde(default = "default_enabled")]
    pub enabled: bool,
    /// Within which time after its start the program looks whether a run is due.
    #[serde(default = "default_first_look")]
    pub first_look: Duration,
    /// How long messages of the log are kept.
    #[serde(default = "default_keep")]
    pub keep: Duration,
    /// The URL of the same database for a role that may delete rows. Default: that of `[database]`.
    pub database_url: Option<String>,
    /// The path of a file that holds this URL.
    pub database_url_file: Option<PathBuf>,
}

fn default_enabled() -> bool {
    true
}

fn default_first_look() -> Duration {
    Duration(std::time::Duration::from_secs(60))
}

fn default_keep() -> Duration {
    Duration(std::time::Duration::from_secs(7 * 24 * 3600))
}

impl Default for Keeper {
    fn default() -> Self {
        Self {
            enabled: default_enabled(),
            first_look: default_first_look(),
            keep: default_keep(),
            database_url: None,
            database_url_file: None,
        }
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("enabled", &self.enabled)
            .field("first_look", &self.first_look)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}
