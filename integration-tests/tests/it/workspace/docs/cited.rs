//! Numbers that Rust files cite, and files that pages name.
use super::{super::root, files};
use std::path::Path;

/// Folders of the tree with which a code span begins that names a file. `it` is short for the tests' folder.
const FOLDERS: &[&str] = &[
    ".cargo",
    ".ci",
    "bench",
    "crates",
    "docs",
    "examples",
    "integration-tests",
    "it",
    "migrations",
    "xtask",
];

/// The anchors that a Rust file cites, with their lines: `R37`, `D7`, `I10`, `t18`, `fault 12` and `trap 3`
/// in comments, `row_12_…` and `t18_…` in names.
pub(super) fn in_rust(code: &str) -> Vec<(usize, String)> {
    let mut cited = Vec::new();
    let has_digit = |line: &str| line.as_bytes().iter().any(u8::is_ascii_digit);
    for (number, line) in (1..).zip(code.lines()).filter(|(_, line)| has_digit(line)) {
        let comment = line.split_once("//").map_or("", |(_, comment)| comment);
        let anchors = in_names(line).into_iter().chain(in_comment(comment));
        cited.extend(anchors.map(|anchor| (number, anchor)));
    }
    cited
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn in_names(line: &str) -> Vec<String> {
    let mut cited = Vec::new();
    for word in words(line) {
        let mut parts = word.split('_').peekable();
        if parts.peek() == Some(&"row") {
            cited.extend(parts.nth(1).and_then(number).map(|n| format!("fault-{n}")));
            continue;
        }
        let tests = parts.map_while(|part| part.strip_prefix('t').filter(|n| n.len() == 2).and_then(number));
        let is_name = word.contains('_');
        cited.extend(tests.filter(|_| is_name).map(|n| format!("t{n}")));
    }
    cited
}

fn in_comment(comment: &str) -> Vec<String> {
    let mut cited = Vec::new();
    let mut of = None;
    for word in words(comment) {
        match word.to_lowercase().as_str() {
            "fault" | "faults" => of = Some("fault"),
            "trap" | "traps" => of = Some("trap"),
            "and" => {}
            _ => match (of, number(word)) {
                (Some(what), Some(n)) => cited.push(format!("{what}-{n}")),
                _ => of = None,
            },
        }
        let digits = |prefix| word.strip_prefix(prefix).filter(|n| n.len() <= 2).and_then(number);
        cited.extend(["R", "D", "I"].into_iter().filter_map(|prefix| {
            let n = digits(prefix)?;
            Some(format!("{}{n}", prefix.to_lowercase()))
        }));
        cited.extend(digits("t").filter(|_| word.len() == 3).map(|n| format!("t{n}")));
    }
    cited
}

fn number(digits: &str) -> Option<u32> {
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the file exists that a code span names, with the name behind `::` in it. None: the span names no
/// file.
pub(super) fn file(span: &str) -> Option<Result<(), String>> {
    let (path, name) = span.split_once("::").map_or((span, None), |(path, name)| (path, Some(name)));
    let (folder, rest) = path.split_once('/')?;
    let path = match folder {
        _ if path.contains(char::is_whitespace) => return None,
        "it" => format!("integration-tests/tests/{path}"),
        folder if FOLDERS.contains(&folder) => path.to_owned(),
        folder if folder.starts_with("twinbox") && !rest.is_empty() => format!("crates/{path}"),
        _ => return None,
    };
    // Up to a placeholder such as `<database>`.
    let whole = path.split(['<', '*']).next().unwrap_or(&path);
    let whole =
        if whole.len() < path.len() { whole.rsplit_once('/').map_or("", |(up, _)| up) } else { whole };
    Some(match (std::fs::read_to_string(root().join(whole)), name) {
        (Ok(text), Some(name)) if !words(&text).any(|word| word == name) => {
            Err(format!("it has no {name}{}", elsewhere(name)))
        }
        (Ok(_), _) => Ok(()),
        (Err(_), _) if root().join(whole).is_dir() => Ok(()),
        (Err(_), Some(name)) => Err(format!("there is no such file{}", elsewhere(name))),
        (Err(_), None) => Err(format!("there is no such file{}", of_that_name(whole))),
    })
}

/// The type and the item of a code span such as `Consumer::lease`. None: the span names no item of a type.
pub(super) fn item(span: &str) -> Option<(&str, &str)> {
    let path = span.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next()?;
    let (rest, item) = path.rsplit_once("::")?;
    let owner = rest.rsplit("::").next()?;
    (owner.starts_with(char::is_uppercase) && !item.is_empty()).then_some((owner, item))
}

/// Whether a file declares the type or implements it, and has the item.
pub(super) fn declares(code: &str, owner: &str, item: &str) -> bool {
    let has_owner = |line: &str| {
        let line = line.trim_start().trim_start_matches("pub ");
        let is_head = ["impl", "enum ", "struct ", "trait "].iter().any(|head| line.starts_with(head));
        is_head && words(line).any(|word| word == owner)
    };
    words(code).any(|word| word == item) && code.lines().any(has_owner)
}

/// Files with a name, or with a test of the same fault.
fn elsewhere(name: &str) -> String {
    let of_fault = name.get(..7).filter(|start| start.starts_with("row_") && start.ends_with('_'));
    let mut found = Vec::new();
    for (file, text) in files::texts() {
        if !file.starts_with("integration-tests/tests/") || file.contains("/docs/") {
            continue;
        }
        let is_like = |word: &&str| *word == name || of_fault.is_some_and(|of| word.starts_with(of));
        found.extend(words(&text).filter(is_like).map(|word| format!("{file}::{word}")));
    }
    found.sort();
    found.dedup();
    listed(&found)
}

fn of_that_name(path: &str) -> String {
    let name = Path::new(path).file_name();
    let files = files::texts().map(|(file, _)| file).filter(|file| Path::new(file).file_name() == name);
    listed(&Vec::from_iter(files))
}

fn listed(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!("; perhaps {}", found.join(", ")) }
}

#[test]
fn citations_are_found() {
    let of = |line| Vec::from_iter(in_rust(line).into_iter().map(|(_, anchor)| anchor));
    assert_eq!(of("/// R3, D16, t06: a key"), ["r3", "d16", "t6"]);
    assert_eq!(
        of("//! Killed at each step. Faults 4, 5 and 25, trap 1"),
        ["fault-4", "fault-5", "fault-25", "trap-1"]
    );
    assert_eq!(of("/// Also fault 22, in I10"), ["fault-22", "i10"]);
    assert_eq!(of("async fn row_07_frozen() {"), ["fault-7"]);
    assert_eq!(of("async fn t07_t08_keys() {"), ["t7", "t8"]);
    assert_eq!(item("relay::Relay::run(…)"), Some(("Relay", "run")));
    assert_eq!((item("relay::run"), item("Relay")), (None, None));
    assert!(declares("impl<DB> Ops<DB> {\n    fn redact()", "Ops", "redact"));
    assert!(!declares("/// Of an Ops\n    fn redact()", "Ops", "redact"));
    assert_eq!(of("let (R1, t1, row) = (D2, t12, 5); // fault in 5 of 7"), [""; 0]);
}
