//! Background tasks have names: one test takes the list of names, and none can be left out of it.
use super::files::texts;

/// The beginnings of tasks in the code of a file, without its comments and its tests: what follows `spawn(`.
fn beginnings(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines =
        code.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.starts_with("use "));
    let code = lines.collect::<Vec<_>>().join("");
    let starts = ["spawn(", "spawn_blocking(", "spawn_local(", "spawn_on("];
    let ends = starts.iter().flat_map(|start| code.match_indices(start).map(|(at, _)| at + start.len()));
    ends.map(|at| code[at..].chars().take(40).collect()).collect()
}

#[test]
fn no_task_is_started_without_a_name() {
    let mut count = 0;
    for (name, text) in texts().filter(|(name, _)| name.starts_with("crates/") && name.ends_with(".rs")) {
        let is_product = name.contains("/src/") && !name.starts_with("crates/twinbox-testkit/");
        if !is_product || name.contains("/tests") {
            continue;
        }
        for beginning in beginnings(&text) {
            assert!(beginning.starts_with("TaskName::"), "{name}: start it with a `TaskName`: {beginning}");
            count += 1;
        }
    }
    assert!(count > 40, "{count} tasks");
}

#[test]
fn a_task_without_a_name_is_found() {
    assert_eq!(beginnings("/// tokio::spawn(work)\nuse tokio::spawn;").len(), 0);
    assert_eq!(beginnings("tokio::spawn(\n    work(),\n);"), ["work(),);"]);
    assert_eq!(beginnings("set.spawn(TaskName::Page.of(page))"), ["TaskName::Page.of(page))"]);
}
