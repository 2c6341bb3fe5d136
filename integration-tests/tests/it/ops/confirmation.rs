//! A change names its database, asks, prints its result, and leaves an audit entry.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    database::SERVICE,
    effects::{mail, plan},
    stores::{Placed, TestDb, World, effect},
    tool::{Ran, Tool},
    wait::in_time,
};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::process::Stdio;
use twinbox::{Consumer, Delivery, Dialect, HandlerError, HandlerResult, Tx, event_handler};
use twinbox_testkit::servers::find;

#[event_handler(consumer = "billing.invoice")]
async fn invoice<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    match order.n {
        13 => Err(HandlerError::reject("unlucky")),
        n => Ok(effect::<DB>(tx, n).await?),
    }
}

/// A world in which the consumer has handled message 1 and has given up message 13.
async fn world<DB: TestDb>() -> World<DB> {
    let world = World::<DB>::new().await;
    publish(&world, 1..2).await;
    publish(&world, 13..14).await;
    let consumer = Consumer::new((*world).clone(), ()).handler::<invoice>();
    run_until(consumer, async || world.rows("inbox").await == 2).await;
    world
}

/// Runs the tool on a terminal, where a person types the answer.
async fn answer(tool: &Tool, answer: &str, arguments: &[&str]) -> Ran {
    const TERMINAL: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
os.write(terminal, (sys.argv[1] + '\\n').encode())
out = b''
while True:
    try:
        read = os.read(terminal, 4096)
    except OSError:
        break
    if not read:
        break
    out += read
status = os.waitpid(pid, 0)[1]
sys.stdout.buffer.write(out)
sys.exit(os.waitstatus_to_exitcode(status))
";
    let tool = tool.command(arguments);
    let mut command = tokio::process::Command::new(find::python().unwrap());
    command.args(["-c", TERMINAL, answer]).arg(tool.as_std().get_program()).args(arguments);
    command.envs(tool.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = in_time(command.stdin(Stdio::null()).output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
}

/// The name of the database as a person reads it.
async fn database_of(tool: &Tool) -> String {
    tool.json(&["status", "--max-unowned", "1h"]).await["database"].as_str().unwrap().to_owned()
}

async fn a_declined_change_is_not_made_and_is_no_success<DB: TestDb>() {
    let world = world::<DB>().await;
    let tool = Tool::of(&world);
    let pause = ["consumers", "pause", "billing.invoice"];
    for no in ["n", "", "maybe"] {
        let ran = answer(&tool, no, &pause).await;
        assert!(ran.code == 8 && ran.out.contains("Go on? [y/N]"), "{ran:?}");
        assert!(ran.out.contains("the answer was no: nothing is changed"), "{ran:?}");
    }
    assert_eq!(tool.json(&["consumers", "list"]).await[0]["paused"], json!(null));
    assert_eq!(tool.json(&["audit", "list"]).await, json!([]));
    let ran = answer(&tool, "y", &pause).await;
    assert!(ran.code == 0 && ran.out.contains("Consumer billing.invoice is paused."), "{ran:?}");
    let name = database_of(&tool).await;
    let name = name.rsplit_once('/').unwrap().1;
    assert!(ran.out.contains(&format!("Service {SERVICE:?}, host ")) && ran.out.contains(name), "{ran:?}");
    assert_eq!(tool.json(&["audit", "list"]).await[0]["command"], "consumers pause");
}

/// Each command that changes something, as long as it finds something to change.
async fn every_change_names_service_host_and_database<DB: TestDb>() {
    let world = world::<DB>().await;
    let tool = Tool::of(&world);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exported.jsonl");
    let file = file.to_str().unwrap();
    tool.ok(&["dead-letters", "export", "--all", "--file", file]).await;
    let reader = "consumer:billing.invoice";
    tool.ok(&["replays", "run", "resend", "--to", reader, "--all", "--yes", "--no-wait"]).await;
    let changes: [&[&str]; 19] = [
        &["destinations", "resume", reader],
        &["destinations", "backfill", reader, "--until", "2100-01-01T00:00:00Z"],
        &["destinations", "retire", reader],
        &["destinations", "rebase"],
        &["consumers", "pause", "billing.invoice"],
        &["consumers", "resume", "billing.invoice"],
        &["consumers", "forget", "billing.invoice"],
        &["messages", "retry", "--consumer", "billing.invoice"],
        &["messages", "skip", "13", "--destination", reader],
        &["keys", "redact", "13"],
        &["keys", "unblock", "13", "--destination", reader],
        &["dead-letters", "redrive", "--all"],
        &["dead-letters", "discard", "--all", "--reason", "a test"],
        &["dead-letters", "import", file],
        &["replays", "run", "reprocess", "--consumer", "billing.invoice", "--all"],
        &["replays", "pause", "1"],
        &["vendors", "pause", "mail"],
        &["effects", "resolve", "1", "applied", "--reason", "a test"],
        &["--namespace", "other", "schemas", "migrate", "--service", SERVICE],
    ];
    let host = if DB::MODULE == "sqlite" { "this machine" } else { "" };
    let database = database_of(&tool).await;
    let name = database.rsplit_once('/').unwrap().1;
    plan(&world, mail("hello")).await;
    let doubt =
        format!("UPDATE {} SET state = 'unknown', next_attempt_at = NULL", DB::table_of("side_effects"));
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(doubt)).execute(&mut *conn).await.unwrap();
    drop(conn);
    for change in changes {
        let ran = tool.run(&[change, &["--dry-run"]].concat()).await;
        assert_eq!(ran.code, 0, "{change:?}: {ran:?}");
        let line = ran.err.lines().next().unwrap_or_default();
        let named = line.starts_with(&format!("Service {SERVICE:?}, host {host}")) && line.contains(name);
        assert!(named && ran.err.contains("nothing is changed"), "{change:?}: {ran:?}");
    }
    assert_eq!(tool.json(&["audit", "list"]).await.as_array().unwrap().len(), 1, "only the replay");
}

/// The commands that other programs had without a question and without an audit entry.
async fn redact_and_retire_ask_and_leave_an_audit_entry<DB: TestDb>() {
    let world = world::<DB>().await;
    let tool = Tool::of(&world);
    let redact = ["keys", "redact", "13"];
    assert!(tool.ends(2, &redact).await.contains("--yes"));
    let retire = ["destinations", "retire", "consumer:billing.invoice"];
    assert!(tool.ends(2, &retire).await.contains("--yes"));
    let redacted = tool.json(&[&redact[..], &["--yes", "--reason", "asked for"]].concat()).await;
    assert_eq!(
        (&redacted["log"], &redacted["dead_letters"], &redacted["count"]),
        (&json!(1), &json!(1), &json!(2))
    );
    let retired = tool.json(&[&retire[..], &["--yes"]].concat()).await;
    assert_eq!((&retired["command"], &retired["count"]), (&json!("destinations retire"), &json!(1)));
    let audit = tool.json(&["audit", "list"]).await;
    let entry =
        |n: usize| (audit[n]["command"].clone(), audit[n]["target"].clone(), audit[n]["count"].clone());
    let of = |command: &str, target: &str, count: u64| (json!(command), json!(target), json!(count));
    assert_eq!(entry(0), of("destinations retire", "consumer:billing.invoice", 1));
    assert_eq!(entry(1), of("keys redact", "13", 2));
    assert_eq!(audit[1]["reason"], "asked for");
}

/// A destination and a consumer each have one way to be paused.
async fn a_consumer_of_the_log_is_paused_as_a_consumer<DB: TestDb>() {
    let world = world::<DB>().await;
    let pause = ["destinations", "pause", "consumer:billing.invoice", "--yes"];
    let refused = Tool::of(&world).ends(4, &pause).await;
    assert!(refused.contains("twinbox consumers pause billing.invoice"), "{refused}");
}

async fn the_command_line_wins_over_the_environment<DB: TestDb>() {
    let (world, other) = (world::<DB>().await, World::<DB>::new().await);
    let (tool, elsewhere) = (Tool::of(&world), Tool::of(&other));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), elsewhere.url()).unwrap();
    let file = file.path().to_str().unwrap();
    let discard = ["dead-letters", "discard", "--all", "--yes", "--reason", "a test"];
    let nothing = tool.ends(3, &[&discard[..], &["--database-url-file", file]].concat()).await;
    assert!(nothing.contains("no dead letter matches"), "{nothing}");
    assert_eq!(world.rows("dead_letters").await, 1, "DATABASE_URL is not used");
    let both = ["status", "--database-url", tool.url(), "--database-url-file", file];
    assert!(tool.ends(2, &both).await.contains("not both"));
    // Without options the URL wins over the file.
    let mut command = tool.command(&["config", "print", "-o", "json"]);
    let ran = command.env("DATABASE_URL_FILE", file).output().await.unwrap();
    let printed: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(printed[0]["from"], "DATABASE_URL");
    let mut command = tool.command(&["config", "print", "-o", "json"]);
    let ran = command.env_remove("DATABASE_URL").env("DATABASE_URL_FILE", file).output().await.unwrap();
    let printed: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(printed[0]["from"], "DATABASE_URL_FILE");
    let mut command = tool.command(&["config", "print", "-o", "json", "--namespace", "billing"]);
    for (variable, from) in [("billing", "the environment"), ("orders", "an option")] {
        let ran = command.env("TWINBOX_NAMESPACE", variable).output().await.unwrap();
        let printed: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!((&printed[1]["value"], &printed[1]["from"]), (&json!("billing"), &json!(from)));
    }
}

/// For programs that make changes.
async fn a_change_prints_its_result_as_json<DB: TestDb>() {
    let world = world::<DB>().await;
    let tool = Tool::of(&world);
    let paused = tool.json(&["consumers", "pause", "billing.invoice", "--yes"]).await;
    let expected = json!({
        "command": "consumers pause",
        "target": "billing.invoice",
        "service": SERVICE,
        "database": database_of(&tool).await,
        "dry_run": false,
        "count": 1,
    });
    assert_eq!(paused, expected);
    let dry = tool.json(&["dead-letters", "redrive", "--all", "--dry-run"]).await;
    assert_eq!((&dry["dry_run"], &dry["count"]), (&json!(true), &json!(null)));
    let redrive = ["dead-letters", "redrive", "--all", "--yes"];
    assert_eq!(tool.json(&redrive).await["count"], 1);
    assert_eq!(tool.json(&redrive).await["count"], 0, "it is being retried already");
    let nothing =
        ["replays", "run", "resend", "--to", "consumer:billing.invoice", "--id", "nothing", "--yes"];
    assert_eq!(tool.json(&nothing).await["count"], 0);
}

cases! {
    all: [
        a_declined_change_is_not_made_and_is_no_success,
        every_change_names_service_host_and_database,
        redact_and_retire_ask_and_leave_an_audit_entry,
        a_consumer_of_the_log_is_paused_as_a_consumer,
        the_command_line_wins_over_the_environment,
        a_change_prints_its_result_as_json,
    ]
}
