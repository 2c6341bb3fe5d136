//! How the tool ends.
use std::{fmt::Display, process::ExitCode};
use twinbox_sql::{Error, ErrorKind};

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done, or nothing to do
  1    failed: the database is away, or refused
  2    used wrongly
  3    there is nothing of that name or number
  4    refused: it would do harm, or does not fit what is there
  5    done in part
  6    `check` found what the build cannot read
  7    `status` or `doctor` found something wrong
  130  interrupted";

/// Why the tool does not end with 0.
#[derive(Debug)]
pub(crate) struct Exit {
    code: u8,
    what: String,
}

impl Exit {
    fn new(code: u8, what: impl Into<String>) -> Self {
        Self { code, what: what.into() }
    }

    pub(crate) fn failure(what: impl Into<String>) -> Self {
        Self::new(1, what)
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(2, what)
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::new(3, what)
    }

    pub(crate) fn refused(what: impl Into<String>) -> Self {
        Self::new(4, what)
    }

    pub(crate) fn partial(what: impl Into<String>) -> Self {
        Self::new(5, what)
    }

    pub(crate) fn unreadable(what: impl Into<String>) -> Self {
        Self::new(6, what)
    }

    /// What is wrong was said already.
    pub(crate) fn alarm() -> Self {
        Self::new(7, "")
    }

    pub(crate) fn interrupted(what: impl Into<String>) -> Self {
        Self::new(130, what)
    }

    pub(crate) fn tell(self) -> ExitCode {
        if !self.what.is_empty() {
            eprintln!("twinbox: {}", crate::output::plain(&self.what));
        }
        ExitCode::from(self.code)
    }
}

/// With what the database says, which whoever may run this may know; never with the URL, which only sqlx has.
impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        use ErrorKind as K;
        let what = explain(&error);
        match error.kind() {
            K::NotFound => Self::not_found(what),
            K::Conflict
            | K::Configuration
            | K::Schema
            | K::WrongService
            | K::Restored
            | K::Standby
            | K::Detached
            | K::LeaseHeld
            | K::InvalidDraft => Self::refused(what),
            _ => Self::failure(what),
        }
    }
}

pub(crate) fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

/// Of what somebody typed.
pub(crate) fn bad(what: &str, error: impl Display) -> Exit {
    Exit::usage(format!("{what}: {error}"))
}
