use std::{fs::OpenOptions, io::Write as _, thread};

/// Reports that a test cannot run on this machine. The test returns after the call.
///
/// `cargo xtask test` prints the reason and counts the test as skipped.
///
/// # Panics
/// The file that collects the reasons cannot be written.
pub fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = std::env::var_os("TWINBOX_SKIPPED") {
        let mut file = OpenOptions::new().append(true).open(path).expect("xtask made the file");
        // The test program names the thread of a test by the test.
        let test = thread::current().name().unwrap_or_default().to_owned();
        writeln!(file, "{test}\t{}", reason.replace('\n', " ")).expect("a line can be added");
    }
}
