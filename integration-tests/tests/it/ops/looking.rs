//! The programs at a SQLite file that is not theirs, that is missing, or that may only be read.
use crate::support::{
    helper::program as path_of,
    program::destination,
    relay::Target,
    stores::World,
    tool::{Ran, Tool},
    wait::in_time,
};
use serde_json::json;
use sqlx::{
    Connection as _, Sqlite, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use std::{ffi::OsString, fs, path::Path, process::Stdio};
use tempfile::TempDir;
use tokio::process::Command;

/// Commands that look, print, or ask on a terminal that is not there.
const LOOKS: [&[&str]; 7] = [
    &["status"],
    &["doctor"],
    &["destinations", "list"],
    &["schemas", "show"],
    &["schemas", "print", "--service", "shop"],
    &["schemas", "migrate", "--service", "shop", "--dry-run"],
    &["schemas", "migrate", "--service", "shop"],
];
/// Commands of the relay that need the tables.
const OF_RELAY: [&str; 3] = ["check", "purge", "run"];

fn tool(file: &Path) -> Tool {
    Tool::at::<Sqlite>(file.to_str().unwrap())
}

async fn relay(file: &Path, command: &str) -> Ran {
    let config = tempfile::NamedTempFile::new().unwrap();
    let to = destination("nats", &Target::shared(), "create_stream = true");
    let text = format!("[database]\nurl = \"sqlite:{}\"\nservice = \"shop\"\n{to}", file.display());
    fs::write(config.path(), text).unwrap();
    let mut relay = Command::new(path_of("twinbox-relay"));
    relay.arg(command).arg("--config").arg(config.path()).stdin(Stdio::null()).kill_on_drop(true);
    let ran = in_time(relay.output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
}

fn names_in(folder: &TempDir) -> Vec<OsString> {
    Vec::from_iter(fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()))
}

/// A wrong path at three in the morning.
#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_another_program_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("other.db");
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Delete);
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::raw_sql("CREATE TABLE t (n); INSERT INTO t VALUES (1)").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let before = fs::read(&file).unwrap();
    for look in LOOKS {
        let ran = tool(&file).run(look).await;
        assert!(fs::read(&file).unwrap() == before, "{look:?} has changed the file: {ran:?}");
    }
    for command in OF_RELAY {
        let ran = relay(&file, command).await;
        assert!(ran.code != 0, "{command}: {ran:?}");
        assert!(fs::read(&file).unwrap() == before, "{command} has changed the file: {ran:?}");
    }
    assert_eq!(names_in(&folder), ["other.db"], "no journal stays beside it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_not_made_by_who_looks() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("shop.db");
    for look in LOOKS {
        let ran = tool(&file).run(look).await;
        assert_eq!(names_in(&folder), [""; 0], "{look:?} has made a file: {ran:?}");
        let makes_tables = look.contains(&"--service");
        assert!(makes_tables || ran.code == 3 && ran.err.contains("does not exist"), "{look:?}: {ran:?}");
    }
    for command in OF_RELAY {
        let ran = relay(&file, command).await;
        let said = format!("{}{}", ran.out, ran.err);
        let names = said.contains(&format!("{}: the file of the database cannot be opened", file.display()));
        assert!(ran.code != 0 && names, "{ran:?}");
        assert_eq!(names_in(&folder), [""; 0], "{command} has made a file: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_makes_a_durable_file_once_it_was_agreed_to() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("shop.db");
    let tool = tool(&file);
    let migrate = ["schemas", "migrate", "--service", "shop"];
    let dry = tool.json(&[&migrate[..], &["--dry-run"]].concat()).await;
    assert_eq!((&dry["command"], &dry["dry_run"]), (&json!("schemas migrate"), &json!(true)), "{dry}");
    assert_eq!((&dry["service"], &dry["count"]), (&json!("shop"), &json!(null)), "{dry}");
    assert_eq!(names_in(&folder), [""; 0]);

    let refused = tool.ends(2, &migrate).await;
    assert!(refused.contains("no terminal to ask on") && names_in(&folder).is_empty(), "{refused}");

    tool.ok(&[&migrate[..], &["--yes"]].concat()).await;
    let found = tool.run(&["doctor", "-o", "json"]).await;
    let of_setting = |name: &str| super::doctor::findings(&found, name);
    assert_eq!(of_setting("journal_mode"), [("ok".to_owned(), "wal".to_owned())]);
    assert!(of_setting("synchronous")[0].1.contains("keep FULL or EXTRA"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_may_only_be_read_can_be_looked_at() {
    let world = World::<Sqlite>::new().await;
    let tool = tool(Path::new(&format!("{}?mode=ro", world.url())));
    let status = tool.json(&["status", "--max-unowned", "1h"]).await;
    assert_eq!(status["service"], json!(world.service()), "{status}");
    let cursor = "INSERT INTO twinbox_cursors (destination, p, w) VALUES ('nats', 0, 0)";
    sqlx::raw_sql(cursor).execute(world.pool()).await.unwrap();
    let pause = ["destinations", "pause", "nats", "--yes"];
    let refused = tool.run(&pause).await;
    assert!(refused.code != 0 && refused.err.contains("code 8"), "it is read-only: {refused:?}");
    Tool::of(&world).ok(&pause).await;
}
