//! A server on a slow disk, which the test can freeze.
use crate::support::wait::eventually;
use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command};
use tempfile::TempDir;
use twinbox_testkit::servers::{MySqlOptions, MySqlServer};

/// A MariaDB between which and the disk stands a library of the test.
pub(super) struct SlowDisk {
    dir: TempDir,
}

impl SlowDisk {
    /// Compiles the library.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The server may run as another account.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let source = dir.path().join("disk.c");
        fs::write(&source, include_str!("disk.c")).unwrap();
        let disk = Self { dir };
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([disk.library(), source])
            .status()
            .expect("the build needs a C compiler too");
        assert!(compiled.success());
        disk
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("disk.so")
    }

    fn frozen(&self) -> PathBuf {
        self.dir.path().join("frozen")
    }

    fn awaited(&self) -> PathBuf {
        self.dir.path().join("awaited")
    }

    /// Starts a server on this disk. Temporary files may be in memory, which needs no flush.
    pub(super) fn server(&self, options: MySqlOptions) -> MySqlServer {
        let options = options.dir("/var/tmp").env("LD_PRELOAD", self.library());
        let options = options.env("DISK_IS_FROZEN", self.frozen()).env("DISK_IS_AWAITED", self.awaited());
        MySqlServer::start_with(options).unwrap()
    }

    /// From now on nothing reaches the disk.
    pub(super) fn freeze(&self) {
        fs::write(self.frozen(), "").unwrap();
    }

    /// Waits until the server has written something, and waits for the disk.
    pub(super) async fn is_awaited(&self) {
        eventually(async || self.awaited().exists().then_some(())).await;
    }

    pub(super) fn thaw(&self) {
        fs::remove_file(self.frozen()).unwrap();
    }
}
