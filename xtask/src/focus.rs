//! Tests on one database, built without what the others need: for the time between two changes.

use std::process::Command;

use crate::cargo::cargo;
use crate::services::Servers;

/// The features of `integration-tests` that are areas, because some packages are for them alone.
const AREAS: [&str; 5] = ["consumer", "effects", "http", "log", "relay"];
/// The area of no other database than this.
const OF_POSTGRES: &str = "relay";
/// The list of all areas.
const MAIN: &str = include_str!("../../integration-tests/tests/it/main.rs");

/// The database of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    /// No server.
    Sqlite,
    /// With NATS, and SQLite's tests too.
    Postgres,
}

impl Focus {
    /// The one of this name.
    pub(crate) fn named(database: &str) -> Option<Self> {
        match database {
            "sqlite" => Some(Self::Sqlite),
            "postgres" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// The servers that the tests need.
    pub(crate) fn servers(self) -> Servers {
        match self {
            Self::Sqlite => Servers::None,
            Self::Postgres => Servers::PostgresAndNats,
        }
    }

    /// The command that builds and runs the tests whose names contain a word.
    pub(crate) fn tests(self, word: &str) -> Command {
        let mut command = cargo();
        command.args(["test", "--package", "integration-tests", "--no-default-features", "--features"]);
        command.arg(self.features(word)).args(["--test", "it", word]);
        command
    }

    /// The area that a word begins with, none for an area that needs no packages, or all for another word.
    fn features(self, word: &str) -> String {
        let area = word.split("::").next().unwrap_or(word);
        let is_area = MAIN.contains(&format!("\nmod {area};"));
        let wanted = |feature: &str| if is_area { feature == area } else { true };
        let mut features: Vec<&str> = AREAS.into_iter().filter(|feature| wanted(feature)).collect();
        match self {
            Self::Sqlite => features.retain(|feature| *feature != OF_POSTGRES),
            Self::Postgres => features.push("postgres"),
        }
        features.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_built_with_its_packages_and_another_word_with_all() {
        assert_eq!(Focus::Sqlite.features("publish::batches"), "");
        assert_eq!(Focus::Sqlite.features("http::tokens"), "http");
        assert_eq!(Focus::Sqlite.features("row_11"), "consumer,effects,http,log");
        assert_eq!(Focus::Postgres.features("relay::parking"), "relay,postgres");
        assert_eq!(Focus::Postgres.features("row_11"), "consumer,effects,http,log,relay,postgres");
    }

    #[test]
    fn areas_are_features() {
        let manifest = include_str!("../../integration-tests/Cargo.toml");
        for feature in AREAS.into_iter().chain(["postgres"]) {
            assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
            assert!(feature == "postgres" || MAIN.contains(&format!("\nmod {feature};")), "{feature}");
        }
    }
}
