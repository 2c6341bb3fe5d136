//! The processes that tests start.
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the path of a program: `twinbox`, `twinbox-relay`, an example, or one with crash points. Each is a
/// link to one program, which does what its name says.
pub(crate) fn program(name: &str) -> PathBuf {
    let helper = Path::new(env!("CARGO_BIN_EXE_it-helper"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    let link = folder.join(name);
    if fs::read_link(&link).is_ok_and(|to| to == helper) {
        return link;
    }
    fs::create_dir_all(&folder).unwrap();
    // Other tests may do the same at this moment.
    let new = tempfile::tempdir_in(&folder).unwrap();
    symlink(helper, new.path().join(name)).unwrap();
    fs::rename(new.path().join(name), &link).unwrap();
    link
}

/// Returns a command that calls cargo as if no test did.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    without_own_package(&mut cargo);
    cargo
}

/// Takes the variables of this package, which cargo sets for its tests, from a command that calls cargo.
/// Build scripts of other packages read them, so that cargo would build those anew.
pub(crate) fn without_own_package(command: &mut Command) -> &mut Command {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    command
}
