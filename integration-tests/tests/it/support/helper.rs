//! The processes that tests start.
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
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
