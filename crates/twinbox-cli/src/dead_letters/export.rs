//! `twinbox dead-letters export`.
use super::file::Line;
use crate::{
    exit::Exit,
    output::{counted, exit_without_reader, note},
    session::Session,
};
use serde_json::json;
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};
use twinbox_ops::dead_letters::DeadLetter;
use twinbox_sql::Dialect;

pub(super) async fn export<DB: Dialect>(
    session: &Session<DB>,
    dead_letters: &[DeadLetter],
    file: Option<&Path>,
) -> Result<(), Exit> {
    let count = counted(dead_letters.len() as u64, "dead letter");
    let Some(file) = file else {
        for dead_letter in dead_letters {
            let line = line(session, dead_letter).await?;
            let written = writeln!(std::io::stdout().lock(), "{line}");
            written.unwrap_or_else(|error| exit_without_reader(&error));
        }
        note(&format!("{count} written."));
        return Ok(());
    };
    let failed = |error: std::io::Error| Exit::failure(format!("{}: {error}", file.display()));
    // Never overwrites a file.
    let mut out = BufWriter::new(File::create_new(file).map_err(failed)?);
    for dead_letter in dead_letters {
        writeln!(out, "{}", line(session, dead_letter).await?).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    let record = json!({"file": file, "dead_letters": dead_letters.len()});
    session.output.one(&record, || format!("{count} written to {}.", file.display()));
    Ok(())
}

async fn line<DB: Dialect>(session: &Session<DB>, dead_letter: &DeadLetter) -> Result<String, Exit> {
    let message = session.ops.dead_letter_message(&dead_letter.id).await?;
    let line = Line::new(session, dead_letter, session.decoded(&message));
    serde_json::to_string(&line)
        .map_err(|error| Exit::failure(format!("writing dead letter {} failed: {error}", dead_letter.id)))
}
