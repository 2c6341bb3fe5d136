//! A folder in memory for the data of servers and tests.
//!
//! Tests create and drop a database each, which is hundreds of files. On a disk with ext4 the search for free
//! inodes took two fifths of all processor time.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, io};

use crate::error::Result;
use crate::group::Group;

/// Where Linux keeps files in memory.
const MEMORY: &str = "/dev/shm";
/// The start of the names of folders. The process follows.
const PREFIX: &str = "twinbox-tests-";
/// The room that the tests may need, in KiB. A run takes about a quarter of it.
const ROOM_KIB: u64 = 8 << 20;
/// The variable for the folder of temporary files. A value in the environment is kept.
const TEMPORARY: &str = "TMPDIR";

/// Runs this command again as a process whose temporary files are in memory. Returns nothing if they stay
/// where they are: the environment names a folder, or there is not enough memory.
pub(crate) fn run_in_memory(args: &[&str]) -> Result<Option<bool>> {
    if env::var_os(TEMPORARY).is_some() {
        return Ok(None);
    }
    // They take room. Other systems have no such place.
    let _ = remove_folders_of_ended_processes();
    if !has_room() {
        return Ok(None);
    }
    let folder = Folder(Path::new(MEMORY).join(format!("{PREFIX}{}", process::id())));
    fs::create_dir(&folder.0)?;
    // Servers run as other accounts.
    fs::set_permissions(&folder.0, Permissions::from_mode(0o1777))?;
    let mut again = Command::new(env::current_exe()?);
    Ok(Some(Group::spawn(again.args(args).env(TEMPORARY, &folder.0))?.wait()?.success()))
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether the folder and the memory have room, and programs may run there.
fn has_room() -> bool {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let mounted = read("/proc/mounts");
    let mounted = mounted.lines().rfind(|line| line.split(' ').nth(1) == Some(MEMORY)).unwrap_or("noexec");
    let room = Command::new("df").args(["-Pk", MEMORY]).output();
    let room = room.map(|df| available(&String::from_utf8_lossy(&df.stdout))).unwrap_or(0);
    !mounted.contains("noexec") && room.min(unused(&read("/proc/meminfo"))) >= ROOM_KIB
}

/// Reads `MemAvailable:   16000000 kB`.
fn unused(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Reads `Filesystem 1024-blocks Used Available Capacity Mounted on`.
fn available(df: &str) -> u64 {
    let column = df.lines().nth(1).and_then(|line| line.split_whitespace().nth(3));
    column.and_then(|available| available.parse().ok()).unwrap_or(0)
}

/// A run that was killed has left its folder. It may have had the number of this process.
fn remove_folders_of_ended_processes() -> io::Result<()> {
    for entry in fs::read_dir(MEMORY)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if process == process::id().to_string() || !Path::new("/proc").join(process).exists() {
            // Another run may do the same, or another account own it.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_the_fourth_column() {
        let df = "Filesystem     1024-blocks   Used Available Capacity Mounted on\n\
            tmpfs             25165824 519000  24646824       3% /dev/shm\n";
        assert_eq!(available(df), 24_646_824);
        assert_eq!(unused("MemTotal: 9 kB\nMemAvailable:   24 kB\n"), 24);
        assert_eq!(available("df: /dev/shm: No such file or directory\n"), 0);
    }
}
