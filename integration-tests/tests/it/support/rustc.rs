//! The compiler without cargo, which would build all packages once more.
use super::helper::cargo;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The compiler, with libraries as they were built for this test program.
pub(crate) struct Rustc {
    libraries: BTreeMap<&'static str, PathBuf>,
}

impl Rustc {
    /// Looks these libraries up.
    pub(crate) fn with<const N: usize>(names: [&'static str; N]) -> Self {
        let mut cargo = cargo();
        cargo.args(["test", "--workspace", "--all-features", "--test", "programs", "--no-run", "--offline"]);
        cargo.arg("--message-format=json").current_dir(env!("CARGO_MANIFEST_DIR"));
        let built = cargo.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let lines = String::from_utf8(built.stdout).unwrap();
        let messages = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let built = Vec::from_iter(messages.filter_map(|message| {
            let mut files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
            let file = PathBuf::from(files.find(|file| file.ends_with(".rlib"))?);
            Some((
                message["target"]["name"].as_str()?.to_owned(),
                message["features"].as_array()?.len(),
                file,
            ))
        }));
        // A build script has a library of the same name, with fewer features.
        let with_most_features = |name| {
            let of_name = built.iter().filter(|library| library.0 == name);
            of_name.max_by_key(|library| library.1).unwrap_or_else(|| panic!("{name} is not built")).2.clone()
        };
        Self { libraries: names.into_iter().map(|name| (name, with_most_features(name))).collect() }
    }

    /// Returns a command that compiles a program of one file to a folder.
    pub(crate) fn command(&self, to: &Path) -> Command {
        let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition=2024", "--out-dir"]).arg(to);
        for (name, library) in &self.libraries {
            rustc.arg("--extern").arg(format!("{name}={}", library.display()));
            rustc.arg("-L").arg(format!("dependency={}", library.parent().unwrap().display()));
        }
        rustc
    }
}
