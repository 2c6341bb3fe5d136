use std::{fs::OpenOptions, io::Write as _};

/// Says why a test cannot run on this machine. `cargo xtask test` prints it and counts the test, which then
/// returns, as skipped.
///
/// # Panics
/// The file that the reasons are collected in cannot be written.
pub fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = std::env::var_os("TWINBOX_SKIPPED") {
        let mut file = OpenOptions::new().append(true).open(path).expect("xtask made the file");
        writeln!(file, "{}", reason.replace('\n', " ")).expect("a line can be added");
    }
}
