//! Starts cargo.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// Returns a command that runs cargo in the folder of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    if let Some(own) = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
        command.current_dir(own.parent().expect("xtask lies in the workspace"));
    }
    command
}
