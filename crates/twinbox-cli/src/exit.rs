//! Exit codes and error messages.
use crate::output::note;
use std::{fmt::Display, process::ExitCode};
use twinbox_sql::{Error, ErrorKind};

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done, or nothing to do
  1    failed: the database is unreachable, or reported an error
  2    wrong usage
  3    no such name or number
  4    refused: the command would do harm, or does not fit this database
  5    partly done
  6    `schemas check` found messages that the build cannot read
  7    `status`, `doctor` or `grants check` found something wrong
  8    the question was answered with no: nothing is changed
  130  interrupted";

/// The reason why the exit code is not 0.
#[derive(Debug)]
pub(crate) struct Exit {
    code: u8,
    message: String,
    /// Whether a lock that another session holds is the reason.
    pub(crate) waited_for_lock: bool,
}

impl Exit {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), waited_for_lock: false }
    }

    /// The same with another sentence.
    pub(crate) fn and(self, sentence: &str) -> Self {
        Self { message: format!("{}\n{sentence}", self.message), ..self }
    }

    pub(crate) fn failure(message: impl Into<String>) -> Self {
        Self::new(1, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(3, message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(4, message)
    }

    pub(crate) fn partial(message: impl Into<String>) -> Self {
        Self::new(5, message)
    }

    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self::new(6, message)
    }

    /// The output already names the problem.
    pub(crate) fn alarm() -> Self {
        Self::new(7, "")
    }

    pub(crate) fn declined() -> Self {
        Self::new(8, "the answer was no: nothing is changed")
    }

    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::new(130, message)
    }

    /// Prints the message.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            note(&format!("twinbox: {}", self.message));
        }
        ExitCode::from(self.code)
    }
}

/// Contains the database's error text, which an operator may know. Never contains the URL.
impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        use ErrorKind as K;
        let message = explain(&error);
        if error.is_lock_timeout() {
            return Self { waited_for_lock: true, ..Self::failure(message) };
        }
        match error.kind() {
            K::NotFound => Self::not_found(message),
            K::Conflict
            | K::Configuration
            | K::Schema
            | K::WrongService
            | K::Restored
            | K::Standby
            | K::Detached
            | K::LeaseHeld
            | K::InvalidDraft => Self::refused(message),
            _ => Self::failure(message),
        }
    }
}

/// The error with its sources.
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

/// An error in the operator's input.
pub(crate) fn invalid(what: &str, error: impl Display) -> Exit {
    Exit::usage(format!("{what}: {error}"))
}
