//! A disk whose power a test can cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::ServerError;
use super::sandbox::Sandbox;

/// Calls `EXT4_IOC_SHUTDOWN` without a flush of the journal. In Perl, because every Debian has it.
const SHUTDOWN: &str = "perl -e 'open(my $disk, q(<), q(disk)) or die $!; \
    my $how = pack(q(L), 2); ioctl($disk, 0x8004587d, $how) or die $!'";

/// An ext4 file system in a file behind a loop device. A power cut loses all data that was not synced.
///
/// Dropping it unmounts and deletes it. End the programs that use it before.
#[derive(Debug)]
pub struct Disk {
    sandbox: Sandbox,
    path: PathBuf,
}

impl Disk {
    /// Creates and mounts a disk of 256 MB.
    ///
    /// # Errors
    ///
    /// This machine lacks one of: Linux, root, a free loop device, `mkfs.ext4`, `perl`.
    pub fn new() -> Result<Self, ServerError> {
        let sandbox = Sandbox::new(&std::env::temp_dir(), "disk", "KILL")?;
        let disk = Self { path: sandbox.dir().join("disk"), sandbox };
        fs::create_dir(&disk.path).map_err(|source| ServerError::io("cannot make a mount point", source))?;
        disk.sh("truncate -s 256M image && mkfs.ext4 -q -F image && perl -v")?;
        disk.mount()?;
        disk.cut_power()?;
        disk.restore_power()?;
        Ok(disk)
    }

    /// Returns the folder where the disk is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the disk: all data written so far survives a power cut.
    ///
    /// # Errors
    ///
    /// The disk has no power.
    pub fn sync(&self) -> Result<(), ServerError> {
        self.sh("sync -f disk")
    }

    /// Cuts the power. From now on every write fails with an error.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn cut_power(&self) -> Result<(), ServerError> {
        self.sh(SHUTDOWN)
    }

    /// Restores the power and mounts the disk with the data that was synced.
    ///
    /// # Errors
    ///
    /// A process still uses the disk.
    pub fn restore_power(&self) -> Result<(), ServerError> {
        self.sh("umount disk")?;
        self.mount()
    }

    fn mount(&self) -> Result<(), ServerError> {
        self.sh("mount -t ext4 -o loop image disk")
    }

    fn sh(&self, script: &str) -> Result<(), ServerError> {
        let output = Command::new("sh").args(["-c", script]).current_dir(self.sandbox.dir()).output();
        let output = output.map_err(|source| ServerError::io("cannot run sh", source))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(ServerError::new(format!("`{script}` failed: {}", said.trim())))
            }
        }
    }
}
