//! The alert rules for Prometheus: each fires in its fault and clears after it.
mod application;
mod consumers;
mod live;
mod prometheus;
mod relays;
mod scrape;
mod watch;

use crate::support::{stores::World, tool::Tool};
use serde_json::{Value, json};
use sqlx::Sqlite;
use std::{collections::BTreeSet, fmt::Write as _, path::Path, process::Command};
use twinbox_testkit::skipped;

const RULES: &str = include_str!("../../../../crates/twinbox-relay/prometheus/alerts.yml");
const DASHBOARD: &str = include_str!("../../../../crates/twinbox-relay/grafana/twinbox.json");
const METRICS: &str = include_str!("../../../../docs/src/metrics.md");
const RUNBOOK: &str = include_str!("../../../../crates/twinbox-cli/README.md");

/// A value each minute, in the notation of `promtool`: ten of health, the fault, and health again.
const UP: &str = "1x10 0x100 1x100";
const DOWN: &str = "0x10 1x100 0x100";
const JUMP: &str = "0x10 3x200";

/// An alert, the series of its fault, and the minutes at which it fires, and is over.
type Fault = (&'static str, &'static [(&'static str, &'static str)], u32, u32);

const FAULTS: [Fault; 25] = [
    ("TwinboxRelayAway", &[("twinbox_relay_database_up", "1x10 _x100 1x100")], 20, 130),
    ("TwinboxDatabaseAway", &[("twinbox_relay_database_up", UP)], 13, 130),
    (
        "TwinboxMessagesWait",
        &[
            ("twinbox_relay_oldest_message_age_seconds{destination='nats'}", "0x10 90x100 0x100"),
            ("twinbox_relay_paused{destination='nats'}", "0x300"),
        ],
        14,
        130,
    ),
    ("TwinboxDestinationWithoutRelay", &[("twinbox_relay_leased{destination='nats'}", UP)], 14, 130),
    (
        "TwinboxCircuitBreakerOpen",
        &[("twinbox_relay_circuit_breaker{destination='nats', state='open'}", DOWN)],
        14,
        130,
    ),
    ("TwinboxDestinationPaused", &[("twinbox_relay_paused{destination='nats'}", DOWN)], 75, 130),
    ("TwinboxKeysBlocked", &[("twinbox_relay_parked_messages{state='waiting'}", DOWN)], 25, 130),
    ("TwinboxDestinationBlocked", &[("twinbox_relay_parked_messages{state='blocking'}", DOWN)], 25, 130),
    ("TwinboxDeadLetters", &[("twinbox_relay_dead_letters_total{destination='nats'}", JUMP)], 12, 40),
    ("TwinboxMessagesUnrouted", &[("twinbox_relay_unrouted_messages_total", JUMP)], 12, 40),
    ("TwinboxUnfinishedRequests", &[("twinbox_relay_unfinished_idempotency_keys", DOWN)], 30, 130),
    ("TwinboxConsumerDeadLetters", &[("twinbox_consumer_dead_letters_total{consumer='c'}", JUMP)], 12, 40),
    (
        "TwinboxConsumerDeadLettersWait",
        &[("twinbox_consumer_delayed_dead_letters_total{consumer='c', limit='rate'}", JUMP)],
        12,
        40,
    ),
    (
        "TwinboxConsumerFails",
        &[
            ("twinbox_consumer_failed_attempts_total{consumer='c'}", "0x10 0+50x60 3000x100"),
            ("twinbox_consumer_deliveries_total{consumer='c', outcome='handled'}", "0+100x200"),
        ],
        30,
        100,
    ),
    (
        "TwinboxConsumerLags",
        &[("twinbox_consumer_lag_messages{consumer='c'}", "0x10 2000+10x60 2000-100x20 0x60")],
        40,
        100,
    ),
    ("TwinboxMessagesLostByBroker", &[("twinbox_consumer_overtaken_total{consumer='c'}", JUMP)], 12, 40),
    ("TwinboxPayloadConflict", &[("twinbox_consumer_payload_conflicts_total{consumer='c'}", JUMP)], 12, 40),
    (
        "TwinboxEffectsWait",
        &[("twinbox_effects_backlog_age_seconds{vendor='v'}", "0x10 900x100 0x100")],
        13,
        130,
    ),
    ("TwinboxEffectsUnknown", &[("twinbox_effects_unknown_total{vendor='v'}", JUMP)], 12, 40),
    ("TwinboxEffectsFailed", &[("twinbox_effects_failed_total{vendor='v'}", JUMP)], 12, 40),
    ("TwinboxVendorDown", &[("twinbox_effects_open_breakers{vendor='v'}", DOWN)], 30, 130),
    (
        "TwinboxCredentialsRefused",
        &[("twinbox_effects_errors_total{vendor='v', code='AUTH.refused'}", JUMP)],
        12,
        40,
    ),
    ("TwinboxJobFailed", &[("twinbox_jobs_attempts_total{job_id='j', outcome='failed'}", JUMP)], 12, 90),
    ("TwinboxJobMissed", &[("twinbox_jobs_missed_total{job_id='j'}", "0x10 3x2000")], 12, 1500),
    ("TwinboxTablesGrow", &[("twinbox_keeper_lacks_rights", DOWN)], 12, 130),
];

fn alerts() -> BTreeSet<&'static str> {
    RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// One test of `promtool`: the alert is silent in health, fires in its fault, and is silent again.
fn unit_test((alert, series, fires, clears): &Fault) -> String {
    let mut test = String::from("  - interval: 1m\n    input_series:\n");
    for (name, values) in *series {
        writeln!(test, "      - series: \"{name}\"\n        values: '{values}'").unwrap();
    }
    test += "    promql_expr_test:\n";
    for (minute, firing) in [(8, "[]"), (*fires, "[{value: 1}]"), (*clears, "[]")] {
        let expression = format!("count(ALERTS{{alertname='{alert}', alertstate='firing'}})");
        writeln!(test, "      - expr: \"{expression}\"\n        eval_time: {minute}m").unwrap();
        writeln!(test, "        exp_samples: {firing}").unwrap();
    }
    test
}

fn succeeds(promtool: &Path, arguments: &[&str], folder: &Path) {
    let ran = Command::new(promtool).args(arguments).current_dir(folder).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{arguments:?}\n{out}\n{err}");
}

/// Grafana puts the interval in.
#[test]
fn prometheus_reads_the_query_of_each_panel() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
    let rule = |panel: &Value| {
        let query = panel["targets"][0]["expr"].as_str().unwrap_or_else(|| panic!("{panel}"));
        let query = query.replace("$__rate_interval", "5m");
        json!({"record": "query", "expr": query, "labels": {"of": panel["title"]}})
    };
    let rules = Vec::from_iter(panels.map(rule));
    assert!(rules.len() > 10, "{rules:?}");
    let Some(promtool) = std::env::var_os("TWINBOX_PROMTOOL") else {
        return skipped("queries of the dashboard: promtool is not there; TWINBOX_PROMTOOL names it");
    };
    let folder = tempfile::tempdir().unwrap();
    let groups = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    std::fs::write(folder.path().join("dashboard.yml"), groups.to_string()).unwrap();
    succeeds(promtool.as_ref(), &["check", "rules", "dashboard.yml"], folder.path());
}

#[test]
fn each_alert_fires_in_its_fault_and_clears_after_it() {
    let Some(promtool) = std::env::var_os("TWINBOX_PROMTOOL") else {
        return skipped("alert rules: promtool is not there; TWINBOX_PROMTOOL names it");
    };
    assert_eq!(alerts(), FAULTS.iter().map(|(alert, ..)| *alert).collect(), "each alert has its fault");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("alerts.yml"), RULES).unwrap();
    let tests = Vec::from_iter(FAULTS.iter().map(unit_test));
    // The series of a counter may begin with the fault.
    let counters = tests.iter().filter(|test| test.contains("'0x10 3"));
    let begun = counters.map(|test| test.replace("'0x10 3", "'_x10 3"));
    let tests: String = tests.iter().cloned().chain(begun).collect();
    let tests = format!("rule_files: [alerts.yml]\nevaluation_interval: 1m\ntests:\n{tests}");
    std::fs::write(folder.path().join("tests.yml"), tests).unwrap();
    succeeds(promtool.as_ref(), &["check", "rules", "alerts.yml"], folder.path());
    succeeds(promtool.as_ref(), &["test", "rules", "tests.yml"], folder.path());
}

#[test]
fn alerts_name_metrics_and_incidents_that_exist() {
    let words = RULES.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let metrics: BTreeSet<_> = words.filter(|word| word.starts_with("twinbox_")).collect();
    assert!(metrics.len() > 20, "{metrics:?}");
    for metric in metrics {
        assert!(METRICS.contains(&format!("`{metric}`")), "{metric}");
    }
    let incidents: Vec<_> = RULES.split("See \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(incidents.len() > 5, "{incidents:?}");
    for incident in incidents {
        assert!(RUNBOOK.contains(&format!("\n### {incident}\n")), "{incident}");
    }
}

#[tokio::test]
async fn alerts_name_commands_that_exist() {
    let tool = Tool::of(&World::<Sqlite>::new().await);
    let commands: Vec<_> = RULES.split('`').filter(|span| span.starts_with("twinbox ")).collect();
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let words: Vec<_> = command.split(' ').skip(1).collect();
        tool.ok(&[&words, &["--help"][..]].concat()).await;
    }
}
