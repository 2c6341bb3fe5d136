//! The first page, followed by the letter: an empty folder, the packages of a release, and a compiler.
use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const PAGE: &str = include_str!("../../../README.md");
const PROMISED: &str = "order 7 has its invoice";

/// The first block of code in this language.
fn block(language: &str) -> &'static str {
    let rest = PAGE.split_once(&format!("```{language}\n")).expect("the page has such a block").1;
    rest.split_once("```").expect("the block ends").0
}

/// Cargo at the lowest priority, so that it disturbs no test that measures time.
fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new("nice");
    cargo.arg("-n19").arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder).env_remove("CARGO_MANIFEST_DIR");
    cargo
}

fn succeeds(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{command:?}\n{out}\n{}", String::from_utf8_lossy(&ran.stderr));
    out
}

/// Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_program_on_the_first_page_makes_an_invoice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let made = succeeds(cargo(root).args(["xtask", "release", "--dry-run"]));
    let config = made.split("cargo --config ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let packages = PathBuf::from(config);
    let target = packages.ancestors().nth(2).unwrap().join("first-page");

    let (home, name) = (tempfile::tempdir().unwrap(), "first-page");
    succeeds(cargo(home.path()).args(["init", "--quiet", "--vcs", "none", "--name", name]));
    let manifest = home.path().join("Cargo.toml");
    let head = std::fs::read_to_string(&manifest).unwrap().replace("[dependencies]\n", "");
    let dependencies = block("toml").replace(r#"["nats", "postgres"]"#, r#"["sqlite"]"#);
    assert!(dependencies.contains(r#"["sqlite"]"#), "{dependencies}");
    std::fs::write(&manifest, head + &dependencies).unwrap();
    std::fs::write(home.path().join("src/main.rs"), block("rust,no_run")).unwrap();
    // The versions that are downloaded already.
    std::fs::copy(root.join("Cargo.lock"), home.path().join("Cargo.lock")).unwrap();
    let mut build = cargo(home.path());
    build.args(["build", "--offline", "--quiet", "--config"]).arg(&packages).arg("--target-dir").arg(&target);
    succeeds(&mut build);

    let mut program = Command::new(target.join("debug").join(name));
    program.current_dir(home.path()).stdout(Stdio::piped());
    let mut running = Running(program.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), PROMISED);
}
