//! A disk that can lose power.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ServerError;
use super::sandbox::Sandbox;

/// `EXT4_IOC_SHUTDOWN` without a flush of the journal, through the one scripting language that every Debian has.
const SHUTDOWN: &str = "perl -e 'open(my $disk, q(<), q(disk)) or die $!; \
    my $how = pack(q(L), 2); ioctl($disk, 0x8004587d, $how) or die $!'";

/// An ext4 file system of its own, in a file behind a loop device: when its power is cut, what was not synced is gone.
///
/// Dropping it unmounts and deletes it. End what works on it first.
#[derive(Debug)]
pub struct Disk {
    sandbox: Sandbox,
    path: PathBuf,
}

impl Disk {
    /// A disk of 256 MB.
    ///
    /// # Errors
    ///
    /// When this machine has none to give: it takes Linux, root, a free loop device, `mkfs.ext4` and `perl`.
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

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written so far will survive.
    ///
    /// # Errors
    ///
    /// When the disk is without power.
    pub fn sync(&self) -> Result<(), ServerError> {
        self.sh("sync -f disk")
    }

    /// From now on nothing reaches it, and whoever tries is told of an error.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn cut_power(&self) -> Result<(), ServerError> {
        self.sh(SHUTDOWN)
    }

    /// Brings it back, with what had reached it.
    ///
    /// # Errors
    ///
    /// When somebody still works on it.
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
