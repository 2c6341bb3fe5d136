//! Downloads packages of Debian, and keeps complete downloads in the cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use twinbox_testkit::servers::find;

use crate::error::Result;

/// A temporary folder in the cache. A complete download is renamed out of it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let dir = find::cache()?.join(format!("new-{}", process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    /// Downloads a package of Debian without installing it. Returns the folder of its files.
    pub(crate) fn unpack_debian(&self, package: &str) -> Result<PathBuf> {
        let unpacked = self.0.join(format!("{package}.d"));
        self.unpack_debian_into(package, &unpacked)?;
        Ok(unpacked)
    }

    /// The same into a folder of the caller. Returns the downloaded package.
    pub(crate) fn unpack_debian_into(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        let dir = self.0.join(package);
        fs::create_dir(&dir)?;
        let mut download = Command::new("apt-get");
        download.args(["download", "-qq", "-o", "APT::Sandbox::User=root", package]).current_dir(&dir);
        if !quiet(&mut download) {
            apt_update()?;
            run(&mut download)?;
        }
        let deb = file_ending(&dir, "deb")?;
        run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(folder))?;
        Ok(deb)
    }

    /// Unpacks packages of Debian into one folder, and with them the libraries that this machine lacks.
    pub(crate) fn unpack_with_libraries(&self, packages: &[&str], folder: &Path) -> Result<()> {
        let mut packages: Vec<String> = packages.iter().map(|package| (*package).to_owned()).collect();
        let mut unpacked = 0;
        while unpacked < packages.len() {
            let deb = self.unpack_debian_into(&packages[unpacked], folder)?;
            unpacked += 1;
            let missing = libraries(&deb)?.into_iter().filter(|library| !is_installed(library));
            for library in missing {
                if !packages.contains(&library) {
                    packages.push(library);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Moves the libraries of unpacked packages into the folder of a program.
pub(crate) fn move_libraries(unpacked: &Path, into: &Path) -> Result<()> {
    for folders in ["usr/lib", "lib"].map(|folder| unpacked.join(folder)) {
        // The folders of one kind of processor.
        for folder in files(&folders)?.into_iter().filter(|folder| folder.is_dir()) {
            for library in files(&folder)? {
                let name = library.file_name().unwrap_or_default();
                if name.to_string_lossy().contains(".so") {
                    fs::rename(&library, into.join(name))?;
                }
            }
        }
    }
    Ok(())
}

/// Renames a complete download to its final place.
pub(crate) fn keep(new: &Path, kept: &Path, is_there: impl Fn() -> bool) -> Result<()> {
    match fs::rename(new, kept) {
        // Another run has installed it meanwhile.
        Err(_) if is_there() => {}
        renamed => renamed?,
    }
    eprintln!("installed {}", kept.display());
    Ok(())
}

pub(crate) fn file_ending(folder: &Path, extension: &str) -> Result<PathBuf> {
    let mut files = files(folder)?.into_iter();
    let file = files.find(|path| path.extension().is_some_and(|found| found == extension));
    file.ok_or_else(|| format!("the download has no .{extension} file").into())
}

pub(crate) fn apt_install(package: &str) -> Result<()> {
    if !is_root() {
        return Err(format!("cannot install {package}: run as root, or install it yourself").into());
    }
    apt_update()?;
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends", package]);
    run(install.env("DEBIAN_FRONTEND", "noninteractive").env("UCF_FORCE_CONFFOLD", "1"))
}

/// Runs a command with all output on standard error. Standard output is for the variables of `services up`.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    match command.stdin(Stdio::null()).stdout(io::stderr()).stderr(io::stderr()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} failed: {status}").into()),
        Err(error) => Err(format!("cannot run {program}: {error}").into()),
    }
}

pub(crate) fn quiet(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

pub(crate) fn apt_update() -> Result<()> {
    run(Command::new("apt-get").args(["update", "-qq"]))
}

/// Returns the libraries that a package needs.
pub(crate) fn libraries(deb: &Path) -> Result<Vec<String>> {
    let fields = Command::new("dpkg-deb").arg("-f").arg(deb).arg("Depends").output()?;
    Ok(read_libraries(&String::from_utf8_lossy(&fields.stdout)))
}

/// Reads `libssl3 (>= 3.0), libaio1:any | libaio1t64, gawk`. Takes the first of several choices.
fn read_libraries(depends: &str) -> Vec<String> {
    let names = depends.split(',').filter_map(|one| one.split(['|', '(', ':']).next());
    names
        .map(str::trim)
        .filter(|name| name.starts_with("lib") || *name == "zlib1g")
        .map(str::to_owned)
        .collect()
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    let status = query.args(["-W", "-f", "${db:Status-Status}", package]).output();
    status.is_ok_and(|status| status.stdout.starts_with(b"installed"))
}

/// Returns what a folder has, and nothing if there is no such folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => Ok(entries?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_package_are_found() {
        let depends = "mariadb-common (>= 1:10.11), libc6 (>= 2.34), libaio1:any | libaio1t64, zlib1g\n";
        assert_eq!(read_libraries(depends), ["libc6", "libaio1", "zlib1g"]);
        assert!(read_libraries("").is_empty());
    }
}
