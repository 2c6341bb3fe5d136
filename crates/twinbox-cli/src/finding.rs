//! Findings of `doctor` and `grants check`.
use crate::{
    exit::Exit,
    output::{Output, plain},
};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Finding {
    what: String,
    /// `ok`, `warning` or `wrong`.
    verdict: &'static str,
    found: String,
}

pub(crate) fn ok(what: &str, found: impl Into<String>) -> Finding {
    Finding { what: what.to_owned(), verdict: "ok", found: found.into() }
}

pub(crate) fn warning(what: &str, found: impl Into<String>) -> Finding {
    Finding { verdict: "warning", ..ok(what, found) }
}

pub(crate) fn wrong(what: &str, found: impl Into<String>) -> Finding {
    Finding { verdict: "wrong", ..ok(what, found) }
}

impl Finding {
    #[cfg(test)]
    pub(crate) fn verdict(&self) -> &'static str {
        self.verdict
    }

    fn render(&self) -> String {
        format!("{:8}{}: {}", self.verdict, plain(&self.what), plain(&self.found))
    }
}

/// Prints the findings. Exit code 7 if one is wrong.
pub(crate) fn print(findings: &[Finding], output: &Output) -> Result<(), Exit> {
    output.texts(findings, "", Finding::render);
    if findings.iter().any(|finding| finding.verdict == "wrong") { Err(Exit::alarm()) } else { Ok(()) }
}
