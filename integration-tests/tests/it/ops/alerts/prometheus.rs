//! A Prometheus with the rules of the product, in which time is short.
use crate::support::wait::eventually;
use serde_json::{Value, json};
use std::{ffi::OsStr, net::SocketAddr, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// An hour of the rules is a second here.
const SHORTER: u64 = 3600;
/// No time of the rules is shorter than some scrapes.
const SHORTEST: Duration = Duration::from_secs(2);
/// No age of the rules is shorter than this.
const YOUNGEST_SECONDS: u64 = 1;
/// How often Prometheus reads the metrics, and the rules.
const INTERVAL: &str = "250ms";
/// The relay says after 2 s that its database is away, so its scrape may take longer than that.
const INTERVAL_OF_THE_SLOW: &str = "2500ms";

/// Returns the rules with each duration, and each age in seconds, made shorter by one factor.
pub(super) fn shortened(rules: &str) -> String {
    let mut shortened = String::new();
    for line in rules.split_inclusive('\n') {
        let is_timed = ["expr: ", "for: "].iter().any(|field| line.trim_start().starts_with(field));
        if !is_timed {
            shortened += line;
            continue;
        }
        for token in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let word = token.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_age = ["_seconds > ", "_seconds) > "].iter().any(|end| shortened.ends_with(end));
            match (duration(word), word.parse::<u64>()) {
                (Some(duration), _) => shortened += &format!("{}ms", short(duration).as_millis()),
                (None, Ok(age)) if is_age => shortened += &(age / SHORTER).max(YOUNGEST_SECONDS).to_string(),
                _ => shortened += word,
            }
            shortened += &token[word.len()..];
        }
    }
    shortened
}

/// Reads `15m`.
fn duration(word: &str) -> Option<Duration> {
    let number = word.get(..word.len().checked_sub(1)?)?.parse::<u64>().ok()?;
    let unit = [("m", 60), ("h", 3600), ("d", 86_400)].into_iter().find(|(unit, _)| word.ends_with(unit))?.1;
    Some(Duration::from_secs(number * unit))
}

fn short(duration: Duration) -> Duration {
    if duration.is_zero() { duration } else { (duration / SHORTER as u32).max(SHORTEST) }
}

/// A server of Prometheus on a port of its own. Dropping it stops it.
pub(super) struct Prometheus {
    _process: Child,
    _folder: tempfile::TempDir,
    address: String,
    client: reqwest::Client,
}

impl Prometheus {
    /// Starts a server that reads the metrics at these addresses.
    pub(super) async fn start(binary: &OsStr, rules: &str, slow: SocketAddr, quick: [SocketAddr; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let targets = |addresses: &[SocketAddr]| json!([{"targets": addresses}]);
        let config = json!({
            "global": {
                "scrape_interval": INTERVAL,
                "scrape_timeout": INTERVAL,
                "evaluation_interval": INTERVAL,
            },
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                {
                    "job_name": "slow",
                    "scrape_interval": INTERVAL_OF_THE_SLOW,
                    "scrape_timeout": INTERVAL_OF_THE_SLOW,
                    "static_configs": targets(&[slow]),
                },
                {"job_name": "quick", "static_configs": targets(&quick)},
            ],
        });
        // JSON is YAML.
        std::fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        std::fs::write(folder.path().join("alerts.yml"), shortened(rules)).unwrap();
        let mut process = Command::new(binary)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg("--web.listen-address=127.0.0.1:0")
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = loop {
            let line = log.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended: {said}"));
            said += &(line.clone() + "\n");
            if let Some((_, address)) = line.split_once("Listening on\" address=") {
                break address.trim().to_owned();
            }
        };
        // It must not wait for a reader of its log.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { _process: process, _folder: folder, address, client }
    }

    /// Returns the answer of its API, once it is ready to give one.
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let url = format!("http://{}/api/v1/{path}", self.address);
        let url = reqwest::Url::parse_with_params(&url, query).unwrap();
        eventually(async || {
            let answer = self.client.get(url.clone()).send().await.ok()?;
            let answer = answer.error_for_status().ok()?.text().await.ok()?;
            Some(serde_json::from_str::<Value>(&answer).unwrap()["data"].take())
        })
        .await
    }

    /// Waits until Prometheus has a sample for this query.
    pub(super) async fn has(&self, query: &str) {
        let has = async || {
            let answer = self.get("query", &[("query", query)]).await;
            answer["result"].as_array().is_some_and(|found| !found.is_empty()).then_some(())
        };
        eventually(has).await;
    }

    /// Returns whether an alert with this label fires. An empty label: any.
    pub(super) async fn fires(&self, alert: &str, (label, value): (&str, &str)) -> bool {
        let alerts = self.get("alerts", &[]).await;
        alerts["alerts"].as_array().unwrap().iter().any(|found| {
            let labels = &found["labels"];
            let is_of = label.is_empty() || labels[label] == value;
            found["state"] == "firing" && labels["alertname"] == alert && is_of
        })
    }
}

#[test]
fn the_rules_keep_their_form_when_time_is_short() {
    for (rule, short) in [
        (
            "        expr: min_over_time(a_b{c!=\"d1\"}[15m]) > 0\n",
            "        expr: min_over_time(a_b{c!=\"d1\"}[2000ms]) > 0\n",
        ),
        ("  expr: rate(a[1d]) > 0.2 * a offset 1d\n", "  expr: rate(a[24000ms]) > 0.2 * a offset 24000ms\n"),
        (
            "  expr: max by (v) (a_age_seconds) > 7200 or b_seconds > 60\n",
            "  expr: max by (v) (a_age_seconds) > 2 or b_seconds > 1\n",
        ),
        ("  for: 1h\n", "  for: 2000ms\n"),
        ("  for: 0m\n", "  for: 0ms\n"),
        ("  summary: 'for an hour, 15m'\n", "  summary: 'for an hour, 15m'\n"),
    ] {
        assert_eq!(shortened(rule), short);
    }
}
