//! Somebody who uses the console.
use std::str::FromStr;

/// The rights of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Sees everything, payloads included.
    Viewer,
    /// Also changes things, if the console allows changes.
    Operator,
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "viewer" => Ok(Self::Viewer),
            "operator" => Ok(Self::Operator),
            other => Err(format!("no role {other:?}: write `viewer` or `operator`")),
        }
    }
}

/// Somebody who uses the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name, for the audit.
    pub name: String,
    /// The rights of the principal.
    pub role: Role,
}
