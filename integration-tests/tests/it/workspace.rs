//! Rules about the tree itself: who imports whom, how long a file may be, what must not be in it.
mod advisories;
mod api;
mod collections;
mod dependencies;
mod docs;
pub(crate) mod files;
mod locks;
mod modules;
mod release;
mod statements;
mod tasks;
mod waits;

use crate::support::helper::cargo;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace").to_owned()
}

/// The workspace's own packages as cargo sees them, by name.
pub(crate) fn packages() -> BTreeMap<String, Value> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--offline", "--no-deps"]).current_dir(root());
    let output = metadata.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages.iter().map(|p| (text(&p["name"]).to_owned(), p.clone())).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// What the package imports of ours, tests and build scripts included.
fn imports(package: &Value) -> BTreeSet<&str> {
    let names = list(&package["dependencies"]).iter().map(|d| text(&d["name"]));
    names.filter(|name| *name == "twinbox" || name.starts_with("twinbox-")).collect()
}

/// Who may import whom. A package that is not here is refused: write it down.
fn allowed(package: &str) -> Option<&'static [&'static str]> {
    Some(match package {
        "twinbox-core" | "twinbox-macros" => &[],
        "twinbox-aws" | "twinbox-nats" | "twinbox-sql" => &["twinbox-core"],
        "twinbox-effects" | "twinbox-http" | "twinbox-log" | "twinbox-ops" => {
            &["twinbox-core", "twinbox-sql"]
        }
        "twinbox-consumer" => &["twinbox-core", "twinbox-sql", "twinbox-log"],
        // Brokers only for the programs; the relay's program reads the state of its destinations with `ops`.
        "twinbox-console" => &["twinbox-ops"],
        "twinbox-cli" => &[
            "twinbox-core",
            "twinbox-sql",
            "twinbox-log",
            "twinbox-ops",
            "twinbox-aws",
            "twinbox-console",
            "twinbox-nats",
        ],
        "twinbox-relay" => &[
            "twinbox-core",
            "twinbox-sql",
            "twinbox-log",
            "twinbox-ops",
            "twinbox-aws",
            "twinbox-effects",
            "twinbox-nats",
        ],
        "twinbox-testkit" => &["twinbox-core", "twinbox-sql", "twinbox-log", "twinbox-consumer"],
        "twinbox" => &[
            "twinbox-aws",
            "twinbox-consumer",
            "twinbox-core",
            "twinbox-effects",
            "twinbox-http",
            "twinbox-log",
            "twinbox-macros",
            "twinbox-nats",
            "twinbox-ops",
            "twinbox-relay",
            "twinbox-sql",
        ],
        // twinbox-core and twinbox-relay only to turn features on, twinbox-cli for its program.
        "integration-tests" => &[
            "twinbox",
            "twinbox-cli",
            "twinbox-console",
            "twinbox-core",
            "twinbox-relay",
            "twinbox-testkit",
            "sqlite-trace",
        ],
        "sqlite-trace" => &[],
        "twinbox-bench" => &["twinbox", "twinbox-testkit"],
        "xtask" => &["twinbox-testkit"],
        _ => return None,
    })
}

/// So that a broker's types stay in its crate, and a consumer can be built without a relay.
#[test]
fn packages_import_only_what_they_may() {
    let packages = packages();
    for (name, package) in &packages {
        let is_example = text(&package["manifest_path"]).contains("/examples/");
        let example: &[&str] = &["twinbox", "twinbox-testkit"];
        let allowed = if is_example { Some(example) } else { allowed(name) };
        let allowed = allowed.unwrap_or_else(|| panic!("say in this test what {name} may import"));
        let beyond: Vec<_> = imports(package).into_iter().filter(|i| !allowed.contains(i)).collect();
        assert!(beyond.is_empty(), "{name} must not import {beyond:?}");
    }
    let expected = ["twinbox-core", "twinbox-sql", "twinbox-relay", "twinbox-consumer", "twinbox"];
    assert!(expected.iter().all(|name| packages.contains_key(*name)));
}

/// The relay as a library knows no broker.
#[test]
fn the_relay_imports_brokers_only_for_its_program() {
    let packages = packages();
    let relay = &packages["twinbox-relay"];
    let features = relay["features"].as_object().unwrap();
    for broker in ["twinbox-aws", "twinbox-effects", "twinbox-nats", "twinbox-ops"] {
        let found: Vec<_> = list(&relay["dependencies"]).iter().filter(|d| d["name"] == broker).collect();
        assert!(found.iter().all(|d| d["optional"] == true) && found.len() == 1, "{found:?}");
        for (feature, enables) in
            features.iter().filter(|(feature, _)| !["bin", "default"].contains(&feature.as_str()))
        {
            let enabled = list(enables).iter().any(|e| text(e).contains(broker));
            assert!(!enabled, "{feature} turns {broker} on");
        }
        assert!(list(&features["bin"]).iter().any(|e| text(e) == format!("dep:{broker}")));
    }
    let binaries = list(&relay["targets"]).iter().filter(|t| list(&t["kind"]).contains(&"bin".into()));
    for binary in binaries {
        assert_eq!(binary["required-features"], serde_json::json!(["bin"]));
    }
}

/// Types of a broker are nobody else's dependency.
#[test]
fn only_the_crate_of_a_broker_imports_its_client() {
    for (name, package) in packages() {
        let imports = |client: &str| {
            list(&package["dependencies"]).iter().any(|d| text(&d["name"]).starts_with(client))
        };
        // An example is an application, which may set its brokers up.
        let is_example = text(&package["manifest_path"]).contains("/examples/");
        let may =
            is_example || ["twinbox-nats", "integration-tests", "twinbox-bench"].contains(&name.as_str());
        assert!(may || !imports("async-nats"), "{name} imports async-nats");
        let may = is_example || ["twinbox-aws", "twinbox-bench"].contains(&name.as_str());
        assert!(may || !imports("aws-"), "{name} imports the SDK of AWS");
    }
}

/// Features and TLS of sqlx are the application's choice.
#[test]
fn no_library_turns_a_runtime_or_tls_of_sqlx_on() {
    for (name, package) in packages() {
        let library = ["twinbox", "twinbox-core", "twinbox-sql", "twinbox-consumer", "twinbox-http"]
            .contains(&name.as_str());
        let sqlx = list(&package["dependencies"]).iter().filter(|d| d["kind"] != "dev");
        let sqlx = sqlx.filter(|d| text(&d["name"]).starts_with("sqlx"));
        for dependency in sqlx.filter(|_| library) {
            let forced = list(&dependency["features"]).iter().map(text);
            let forced: Vec<_> =
                forced.filter(|f| f.starts_with("runtime") || f.starts_with("tls")).collect();
            assert!(forced.is_empty() && dependency["uses_default_features"] == false, "{name}: {forced:?}");
        }
    }
}

/// `cargo package` would refuse or warn.
#[test]
fn what_is_published_says_what_it_is_and_holds_what_it_includes() {
    for (name, package) in packages() {
        if package["publish"] == serde_json::json!([]) {
            continue;
        }
        for field in ["description", "license", "repository"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        for dependency in list(&package["dependencies"]).iter().filter(|d| d["kind"] != "dev") {
            let ours = dependency["path"].is_string();
            assert!(!ours || dependency["req"] != "*", "{name}: {} has no version", dependency["name"]);
        }
        let folder = Path::new(text(&package["manifest_path"])).parent().unwrap().to_owned();
        let folder = folder.canonicalize().unwrap();
        for source in files::below(&folder).filter(|f| f.extension().is_some_and(|e| e == "rs")) {
            let code = std::fs::read_to_string(&source).unwrap();
            for included in code.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let path = source.parent().unwrap().join(included).canonicalize();
                let path = path.unwrap_or_else(|e| panic!("{}: {included}: {e}", source.display()));
                assert!(path.starts_with(&folder), "{}: {included} is outside of {name}", source.display());
            }
        }
    }
}
