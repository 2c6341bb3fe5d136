//! The page of error codes has every code that a person may meet, and no other. Other pages name no other
//! either.
use super::{
    super::{files, root},
    expect_none,
    markdown::{Page, spans_of},
    pages,
};
use crate::support::helper;
use std::{collections::BTreeSet, process::Command};

const PAGE: &str = "docs/src/codes.md";
const ALERTS: &str = "crates/twinbox-relay/prometheus/alerts.yml";

/// The first words of the codes of destinations and of the relay.
const FAMILIES: [&str; 4] = ["aws", "eventbridge", "nats", "relay"];

fn page() -> Page {
    pages().into_iter().find(|page| page.name == PAGE).expect("the book has the page")
}

/// The code spans in a column of the rows below headings that begin with `section`.
fn column<'p>(page: &'p Page, section: &str, column: usize) -> BTreeSet<&'p str> {
    let rows = page.rows.iter().filter(|row| row.section.starts_with(section));
    rows.flat_map(|row| spans_of(&row.cells[column])).collect()
}

fn expect_same(what: &str, code: &BTreeSet<&str>, shown: &BTreeSet<&str>) {
    let unknown: Vec<_> = shown.difference(code).collect();
    let missing: Vec<_> = code.difference(shown).collect();
    let is_same = unknown.is_empty() && missing.is_empty();
    assert!(is_same, "{what} of {PAGE}: it lacks {missing:?} and invents {unknown:?}");
}

/// The sources of the packages that programs and applications have, without comments and tests.
fn sources() -> Vec<(String, String)> {
    let is_source = |name: &str| {
        let is_test = name.contains("/tests") || name.starts_with("crates/twinbox-testkit/");
        name.starts_with("crates/") && name.contains("/src/") && name.ends_with(".rs") && !is_test
    };
    let without_tests = |text: String| {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        Vec::from_iter(lines).join("\n")
    };
    let sources = files::texts().filter(|(name, _)| is_source(name));
    sources.map(|(name, text)| (name, without_tests(text))).collect()
}

/// Each text between two quotes, with the code or the text before it.
fn literals(code: &str) -> Vec<(&str, &str)> {
    let parts = Vec::from_iter(code.split('"'));
    parts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// `nats.timeout`, but not `nats.10059`: JetStream has hundreds of numbers.
fn is_publish_code(text: &str) -> bool {
    text.split_once('.').is_some_and(|(family, code)| {
        FAMILIES.contains(&family) && is_word(code) && !code.chars().all(|c| c.is_ascii_digit())
    })
}

/// `CONFLICT.idempotency.in_progress`.
fn is_upper_code(text: &str) -> bool {
    text.split_once('.').is_some_and(|(class, rest)| {
        let is_class = class.len() > 1 && class.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        is_class && rest.split('.').all(is_word)
    })
}

fn is_sqlstate(text: &str) -> bool {
    let number = text.strip_prefix("TB").filter(|number| number.len() == 3);
    number.is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
}

/// Texts of the code that are publish codes. Names of crash points look alike.
fn publish_codes(code: &str) -> impl Iterator<Item = &str> {
    let codes = literals(code).into_iter().filter(|(before, _)| !before.ends_with("crash::point("));
    codes.map(|(_, text)| text).filter(|text| is_publish_code(text))
}

fn upper_codes(code: &str) -> impl Iterator<Item = &str> {
    literals(code).into_iter().map(|(_, text)| text).filter(|text| is_upper_code(text))
}

/// The texts of the form `word.word` that a constructor of an error gets.
fn constructed(code: &str) -> impl Iterator<Item = &str> {
    let is_argument = |before: &str| {
        let calls = ["Error::new(", "Self::new(", "Verdict::new("].into_iter();
        let mut inside = calls.filter_map(|call| before.rsplit_once(call));
        inside.any(|(_, arguments)| !arguments.contains([')', ';']))
    };
    let is_code = |text: &str| text.split_once('.').is_some_and(|(a, b)| is_word(a) && is_word(b));
    let texts = literals(code).into_iter().filter(move |(before, text)| is_code(text) && is_argument(before));
    texts.map(|(_, text)| text)
}

/// The endings of the names of files in the tree: `relay.toml` is a file and no code.
fn endings() -> BTreeSet<String> {
    files::texts().filter_map(|(name, _)| Some(name.rsplit_once('.')?.1.to_owned())).collect()
}

/// The words of a text, with the dots inside them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
    words.map(|word| word.trim_matches('.'))
}

#[test]
fn the_page_of_codes_has_every_publish_code_and_no_other() {
    let sources = sources();
    let code = BTreeSet::from_iter(sources.iter().flat_map(|(_, code)| publish_codes(code)));
    assert!(code.contains("nats.timeout") && code.contains("relay.storm") && code.len() > 60, "{code:?}");
    assert!(!code.contains("relay.after_read"), "names of crash points are left out");
    let page = page();
    let mut shown = column(&page, "Codes of NATS", 0);
    shown.extend(column(&page, "Codes of EventBridge", 0));
    shown.extend(column(&page, "Codes of the relay", 0));
    shown.retain(|code| !code.trim_start_matches("nats.").chars().all(|c| c.is_ascii_digit()));
    expect_same("publish codes", &code, &shown);
}

#[test]
fn every_code_of_a_constructor_has_a_known_family() {
    let sources = sources();
    let all = BTreeSet::from_iter(sources.iter().flat_map(|(_, code)| constructed(code)));
    assert!(all.contains("nats.mismatch") && all.contains("relay.storm") && all.len() > 15, "{all:?}");
    let other =
        Vec::from_iter(all.iter().filter(|code| !FAMILIES.contains(&code.split('.').next().unwrap())));
    assert!(other.is_empty(), "add the first words to FAMILIES: {other:?}");
}

#[test]
fn the_page_of_codes_has_every_code_of_requests_and_effects_and_no_other() {
    let sources = sources();
    let of = |package: &str| {
        let sources = sources.iter().filter(|(name, _)| name.starts_with(package));
        BTreeSet::from_iter(sources.flat_map(|(_, code)| upper_codes(code)))
    };
    let page = page();
    let (requests, effects) = (of("crates/twinbox-http/"), of("crates/twinbox-effects/"));
    assert!(requests.len() >= 12 && effects.len() >= 12, "{requests:?} {effects:?}");
    expect_same("codes of requests", &requests, &column(&page, "Problems of requests", 0));
    expect_same("codes of effects", &effects, &column(&page, "Codes of side effects", 0));
    let known = &requests | &effects;
    let others: Vec<_> = of("crates/").difference(&known).copied().collect();
    assert!(others.is_empty(), "codes of other packages, which the page needs too: {others:?}");
}

/// In the code the flat spelling follows the other one.
#[test]
fn the_page_of_codes_has_every_flat_code_and_no_other() {
    let sources = sources();
    let problems = sources.iter().find(|(name, _)| name == "crates/twinbox-http/src/problem.rs");
    let literals = literals(&problems.expect("the file is there").1);
    let flat = literals.windows(3).filter(|three| is_upper_code(three[0].1)).map(|three| three[2].1);
    let flat = BTreeSet::from_iter(flat);
    assert!(flat.len() >= 12 && flat.iter().all(|code| is_word(code)), "{flat:?}");
    expect_same("flat codes", &flat, &column(&page(), "Problems of requests", 1));
}

#[test]
fn the_page_of_codes_has_every_reason_of_dead_letters_and_no_other() {
    let sources = sources();
    let file = sources.iter().find(|(name, _)| name == "crates/twinbox-sql/src/inbox/dead_letter.rs");
    let literals = literals(&file.expect("the file is there").1);
    let reasons = literals.iter().filter(|(before, text)| before.ends_with("=> ") && is_word(text));
    let reasons = BTreeSet::from_iter(reasons.map(|(_, text)| *text));
    assert!(reasons.contains("in_doubt") && reasons.len() >= 7, "{reasons:?}");
    expect_same("reasons", &reasons, &column(&page(), "Reasons of dead letters", 0));
}

#[test]
fn the_page_of_codes_has_every_sqlstate_of_ours_and_no_other() {
    let is_code =
        |name: &str| name.starts_with("crates/") && [".rs", ".sql"].iter().any(|e| name.ends_with(e));
    let texts = Vec::from_iter(files::texts().filter(|(name, _)| is_code(name)));
    let states =
        BTreeSet::from_iter(texts.iter().flat_map(|(_, text)| words(text)).filter(|w| is_sqlstate(w)));
    assert!(states.contains("TB001") && states.len() >= 2, "{states:?}");
    expect_same("SQLSTATEs", &states, &column(&page(), "Codes of the database", 0));
}

#[test]
fn every_code_that_a_page_names_exists() {
    let sources = sources();
    let endings = endings();
    let page_of_codes = page();
    let known = BTreeSet::from_iter(page_of_codes.rows.iter().flat_map(|row| spans_of(&row.cells[0])));
    let is_file = |word: &str| word.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(ending));
    let publish = BTreeSet::from_iter(sources.iter().flat_map(|(_, code)| publish_codes(code)));
    // `NEW.id` in a trigger has no class of ours.
    let class = |code: &str| code.split('.').next().unwrap_or_default().to_owned();
    let classes =
        BTreeSet::from_iter(known.iter().filter(|code| is_upper_code(code)).map(|code| class(code)));
    assert!(classes.contains("PROVIDER") && classes.len() >= 5, "{classes:?}");
    let is_of_class = |word: &str| is_upper_code(word) && classes.contains(&class(word));
    let mut faults = Vec::new();
    for page in pages() {
        let spans = page.spans.iter().filter(|(_, span)| is_publish_code(span) && !is_file(span));
        let unknown = spans.filter(|(_, span)| !publish.contains(span.as_str()));
        faults.extend(unknown.map(|(line, span)| format!("{}:{line} {span}", page.name)));
    }
    for (name, text) in files::texts().filter(|(name, _)| name.ends_with(".md") || name == ALERTS) {
        let codes = words(&text).filter(|word| is_sqlstate(word) || is_of_class(word));
        let unknown = codes.filter(|word| !known.contains(word));
        faults.extend(unknown.map(|word| format!("{name}: {word}")));
    }
    expect_none("the code has no such codes", &faults);
}

/// The numbers in the first column of a table.
fn numbers(page: &Page, section: &str) -> BTreeSet<u8> {
    let rows = page.rows.iter().filter(|row| row.section == section);
    rows.map(|row| row.cells[0].parse().expect("an exit code is a number")).collect()
}

fn help(program: &str) -> String {
    let output = Command::new(helper::program(program)).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    help.split_once("Exit codes:").expect("the help has the exit codes").1.to_owned()
}

fn first_number(text: &str) -> Option<u8> {
    text.split_whitespace().next()?.parse().ok()
}

#[test]
fn the_page_of_codes_has_every_exit_code_of_the_tool_and_no_other() {
    let help = help("twinbox");
    let codes = BTreeSet::from_iter(help.lines().filter_map(first_number));
    assert!(codes.contains(&130) && codes.len() >= 10, "{codes:?}");
    assert_eq!(numbers(&page(), "Exit codes of `twinbox`"), codes);
}

/// The help has those of an ordinary end, the code those of a second signal.
#[test]
fn the_page_of_codes_has_every_exit_code_of_the_relay_and_no_other() {
    let help = help("twinbox-relay");
    let mut codes = BTreeSet::from_iter(help.split('.').next().unwrap().split(',').filter_map(first_number));
    assert!(codes.len() >= 3, "{codes:?}");
    let supervisor = std::fs::read_to_string(root().join("crates/twinbox-relay/src/supervisor.rs")).unwrap();
    let signals = supervisor.split("recv() => ").skip(1);
    codes.extend(signals.filter_map(|text| text.split(',').next()?.parse::<u8>().ok()));
    assert!(codes.len() >= 5, "{codes:?}");
    assert_eq!(numbers(&page(), "Exit codes of `twinbox-relay`"), codes);
}

#[test]
fn codes_are_found() {
    let code =
        r#"crash::point("relay.read"); PublishError::new(Kind::InDoubt, "nats.gone"); x("kafka.y"); "a.b""#;
    assert_eq!(Vec::from_iter(publish_codes(code)), ["nats.gone"]);
    assert_eq!(Vec::from_iter(constructed(code)), ["nats.gone"]);
    assert!(is_upper_code("RATE_LIMIT.exceeded") && !is_upper_code("Cargo.toml") && !is_upper_code("A.b"));
    assert!(is_sqlstate("TB001") && !is_sqlstate("TB01") && !is_publish_code("nats.10059"));
}
