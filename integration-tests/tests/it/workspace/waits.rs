//! How tests wait: a test that is right on a machine without other work only is wrong.
use super::files::texts;

/// The helper of all waits.
const HELPER: &str = "integration-tests/tests/it/support/wait.rs";
const OWN: &str = "integration-tests/tests/it/workspace/waits.rs";
/// An end that a busy machine does not reach.
const GENEROUS_S: f64 = 10.0;

/// Returns the seconds of each literal such as `Duration::from_millis(20)`.
fn literals(statement: &str) -> Vec<f64> {
    let seconds = |text: &str| {
        let (unit, rest) = text.split_once('(')?;
        let number: f64 = rest.split(')').next()?.replace('_', "").parse().ok()?;
        Some(match unit {
            "secs" => number,
            "millis" => number / 1e3,
            "micros" => number / 1e6,
            _ => return None,
        })
    };
    statement.split("Duration::from_").skip(1).filter_map(seconds).collect()
}

/// A statement that fails unless something ends within a fixed time, which is short.
fn has_short_end(statement: &str) -> bool {
    let is_required = [".unwrap(", ".expect("].iter().any(|taken| statement.contains(taken));
    let waits = statement
        .split("timeout(")
        .skip(1)
        .zip(statement.split("timeout("))
        .filter(|(_, before)| !before.ends_with('_'))
        .any(|(after, _)| {
            literals(after.split(',').next().unwrap_or_default()).iter().any(|s| *s < GENEROUS_S)
        });
    let compares = statement.contains("assert") && statement.contains("elapsed()");
    let short = || {
        statement.split_once("elapsed()").map(|(_, after)| after).filter(|after| {
            let as_number = after.trim_start().strip_prefix(".as_secs() <").and_then(|rest| {
                rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse::<f64>().ok()
            });
            after.contains('<') && literals(after).into_iter().chain(as_number).any(|s| s < GENEROUS_S)
        })
    };
    waits && is_required || compares && short().is_some()
}

/// The files of tests, but for this one.
fn tests() -> impl Iterator<Item = (String, String)> {
    let is_test = |name: &str| name.starts_with("integration-tests/tests/it/") && name.ends_with(".rs");
    texts().filter(move |(name, _)| is_test(name) && name != OWN)
}

#[test]
fn tests_let_time_pass_by_one_helper_that_says_why() {
    for (name, text) in tests().filter(|(name, _)| name != HELPER) {
        let at = text.lines().position(|line| line.replace("pg_sleep(", "").contains("sleep("));
        assert!(
            at.is_none(),
            "{name}:{}: use `wait::pause`, or wait for a signal",
            at.unwrap_or_default() + 1
        );
    }
}

#[test]
fn no_test_asks_a_busy_machine_to_be_quick() {
    for (name, text) in tests() {
        for statement in text.split([';', '{', '}']) {
            let statement = statement.trim();
            assert!(!has_short_end(statement), "{name}: give it {GENEROUS_S} s or more:\n{statement}");
        }
    }
}

#[test]
fn short_ends_are_found() {
    for wrong in [
        "timeout(Duration::from_secs(3), task).await.unwrap()",
        "tokio::time::timeout(Duration::from_millis(300), task).await.expect(\"it ends\")",
        "assert!(begun.elapsed() < Duration::from_secs(2), \"slow\")",
        "assert!(begun.elapsed().as_secs() < 3)",
    ] {
        assert!(has_short_end(wrong), "{wrong}");
    }
    for right in [
        "timeout(Duration::from_secs(60), task).await.unwrap()",
        "assert!(timeout(Duration::from_millis(50), task).await.is_err())",
        "pool.acquire_timeout(Duration::from_secs(1)).connect(url).await.unwrap()",
        "assert!(begun.elapsed() > Duration::from_secs(2))",
        "assert!(begun.elapsed() < Duration::from_secs(60))",
    ] {
        assert!(!has_short_end(right), "{right}");
    }
}
