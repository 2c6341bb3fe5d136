//! Starts cargo.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The beginnings of variables that `cargo run` sets for this program. Build scripts of dependencies read
/// some of them, so that cargo would compile those anew for each other way to call it.
const OF_THIS_PROGRAM: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Returns a command that runs cargo in the folder of the workspace, as if it were called by hand.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    if let Some(own) = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
        command.current_dir(own.parent().expect("xtask lies in the workspace"));
    }
    for (name, _) in env::vars_os() {
        if OF_THIS_PROGRAM.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) const NO_DENY: &str = "cargo-deny is not installed (cargo install --locked cargo-deny)";

/// Whether this cargo has cargo-deny, which checks dependencies.
pub(crate) fn has_deny(mut cargo: Command) -> bool {
    cargo.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    cargo.status().is_ok_and(|status| status.success())
}
