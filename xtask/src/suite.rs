//! Packages of a suite of Debian that this machine need not use. Nothing of the system changes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::download::{Scratch, apt_update, file_ending, files, libraries, run};
use crate::error::Result;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Runs a program of another suite with the libraries of that suite, the C library among them.
const WRAPPER: &str = r#"#!/bin/sh
root=$(cd "$(dirname "$0")/../.." && pwd)
libraries=$(echo "$root"/usr/lib/*-linux-gnu "$root"/lib/*-linux-gnu | tr ' ' :)
for loader in "$root"/usr/lib/*-linux-gnu/ld-linux-*.so.* "$root"/lib/*-linux-gnu/ld-linux-*.so.*; do
    [ -x "$loader" ] && exec "$loader" --library-path "$libraries" "$0.real" "$@"
done
echo "$root has no loader" >&2
exit 1
"#;

/// A suite, such as `sid`, with its list of packages.
pub(crate) struct Suite {
    pub(crate) scratch: Scratch,
    config: PathBuf,
}

impl Suite {
    /// Reads the list of packages from where this machine gets its own.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let scratch = Scratch::new()?;
        let apt = scratch.0.join("apt");
        fs::create_dir_all(apt.join("state/lists/partial"))?;
        fs::create_dir_all(apt.join("cache/archives/partial"))?;
        fs::write(apt.join("status"), "")?;
        let source = format!("deb [signed-by={KEYRING}] {} {name} main\n", archive()?);
        fs::write(apt.join("sources.list"), source)?;
        let config = apt.join("apt.conf");
        let dir = apt.display();
        let settings = format!(
            "Dir::State \"{dir}/state\";\nDir::Cache \"{dir}/cache\";\nDir::State::status \"{dir}/status\";\n\
             Dir::Etc::sourcelist \"{dir}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
             APT::Sandbox::User \"root\";\n"
        );
        fs::write(&config, settings)?;
        let suite = Self { scratch, config };
        run(suite.apt_get().args(["update", "-qq"]))?;
        Ok(suite)
    }

    /// The version of a package, such as `9.7.4-2`.
    pub(crate) fn newest(&self, package: &str) -> Result<String> {
        let output = self.apt_get().args(["download", "--print-uris", "-qq", package]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // `NAME_EPOCH%3aVERSION_PROCESSOR.deb`
        let file = text.split_whitespace().nth(1).and_then(|file| file.split('_').nth(1));
        let version = file.and_then(|version| version.rsplit("%3a").next());
        Ok(version.ok_or_else(|| format!("Debian has no package {package} there"))?.to_owned())
    }

    /// Unpacks packages, and all libraries that they need, so that their programs run on any system.
    pub(crate) fn unpack(&self, packages: &[&str], folder: &Path) -> Result<()> {
        let mut packages: Vec<String> = packages.iter().map(|package| (*package).to_owned()).collect();
        let mut unpacked = 0;
        while unpacked < packages.len() {
            let dir = self.scratch.0.join(&packages[unpacked]);
            fs::create_dir(&dir)?;
            run(self.apt_get().args(["download", "-qq", &packages[unpacked]]).current_dir(&dir))?;
            let deb = file_ending(&dir, "deb")?;
            run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(folder))?;
            for library in libraries(&deb)? {
                if !packages.contains(&library) {
                    packages.push(library);
                }
            }
            unpacked += 1;
        }
        for programs in ["usr/bin", "usr/sbin"].map(|dir| folder.join(dir)) {
            files(&programs)?.iter().try_for_each(|program| wrap(program))?;
        }
        Ok(())
    }

    fn apt_get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", &self.config);
        command
    }
}

/// Where this machine gets the packages of Debian.
fn archive() -> Result<String> {
    let read = || -> Result<Option<String>> {
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(REPO_URI)"]);
        let output = targets.args(["Created-By: Packages", "Label: Debian", "Component: main"]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned))
    };
    if let Some(archive) = read()? {
        return Ok(archive);
    }
    apt_update()?;
    read()?.ok_or_else(|| "other versions of databases come from Debian, and apt has no source of it".into())
}

/// Puts a script in the place of a program of the processor.
fn wrap(program: &Path) -> Result<()> {
    let is_program = !program.is_symlink() && fs::read(program)?.starts_with(b"\x7fELF");
    if is_program {
        let name = program.file_name().unwrap_or_default().display();
        fs::rename(program, program.with_file_name(format!("{name}.real")))?;
        fs::write(program, WRAPPER)?;
        fs::set_permissions(program, Permissions::from_mode(0o755))?;
    }
    Ok(())
}
