//! The page of the configuration has every key of `relay.toml` and every variable of the programs, and no
//! other.
//!
//! The program itself lists its keys: it names them in the error about an unknown one.
use super::{
    super::files,
    expect_none,
    markdown::{Page, Row, spans_of},
    pages,
};
use std::collections::{BTreeMap, BTreeSet};
use twinbox_relay::config::{Config, Duration, ENVIRONMENT_PREFIX};

const PAGE: &str = "docs/src/configuration.md";

/// A name and a value that the program does not know.
const WRONG: &str = "zqx";

/// The keys of each table, by the heading of the page about it.
type Tables = BTreeMap<String, BTreeSet<String>>;

fn page() -> Page {
    pages().into_iter().find(|page| page.name == PAGE).expect("the book has the page")
}

/// Variables with the prefix of the relay.
fn environment(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let with_prefix = |(name, value): &(&str, &str)| {
        (format!("{ENVIRONMENT_PREFIX}{}", name.to_uppercase()), (*value).to_owned())
    };
    variables.iter().map(with_prefix).collect()
}

/// The names that the program takes in place of an unknown one. None: it refuses the variables for another
/// reason.
fn taken(variables: &[(&str, &str)]) -> Option<BTreeSet<String>> {
    let mut all = environment(variables);
    all.extend(environment(&[("database__service", "orders")]));
    let error = Config::load(None, all.into_iter()).err()?.to_string();
    let (refusal, names) = error.lines().next()?.split_once(", expected ")?;
    refusal.contains(": unknown ").then(|| spans_of(names).map(str::to_owned).collect())
}

/// The tables of the file with their keys, as the program takes them.
fn tables() -> Tables {
    let mut tables = Tables::new();
    for table in taken(&[(WRONG, "1")]).expect("the program lists its tables") {
        let keys = taken(&[(format!("{table}__{WRONG}").as_str(), "1")]);
        let keys_below_a_name = || taken(&[(format!("{table}__name__{WRONG}").as_str(), "1")]);
        if let Some(keys) = keys {
            tables.insert(format!("`[{table}]`"), keys);
        } else if let Some(keys) = keys_below_a_name() {
            tables.insert(format!("`[{table}.NAME]`"), keys);
        } else {
            tables.extend(tables_by_kind(&table));
        }
    }
    tables
}

/// A table whose keys depend on its kind: those of every kind, and the others of each kind.
fn tables_by_kind(table: &str) -> Tables {
    let (kind, wrong) = (format!("{table}__name__kind"), format!("{table}__name__{WRONG}"));
    let kinds = taken(&[(kind.as_str(), WRONG)]);
    let kinds = kinds.unwrap_or_else(|| panic!("`[{table}]` has neither keys nor kinds"));
    let keys_of = |name: &str| taken(&[(kind.as_str(), name), (wrong.as_str(), "1")]);
    let each = kinds.iter().map(|name| (name, keys_of(name).expect("the program lists the keys of a kind")));
    let each = Vec::from_iter(each);
    let mut every = each[0].1.clone();
    every.retain(|key| each.iter().all(|(_, keys)| keys.contains(key)));
    let mut tables = Tables::new();
    for (name, keys) in &each {
        let own = keys.difference(&every).cloned().collect();
        tables.insert(format!("`[{table}.NAME]` with `kind = \"{name}\"`"), own);
    }
    every.insert("kind".to_owned());
    tables.insert(format!("`[{table}.NAME]`"), every);
    tables
}

/// The rows about keys: key, type, default, meaning.
fn key_rows(page: &Page) -> impl Iterator<Item = &Row> {
    page.rows.iter().filter(|row| row.section.starts_with("`["))
}

/// Each key with its table, as one text.
fn flat(tables: &Tables) -> BTreeSet<String> {
    let keys = |(table, keys): (&String, &BTreeSet<String>)| {
        Vec::from_iter(keys.iter().map(|key| format!("{table}: {key}")))
    };
    tables.iter().flat_map(keys).collect()
}

#[test]
fn the_page_of_the_configuration_has_every_key_and_no_other() {
    let tables = tables();
    let taken = flat(&tables);
    assert!(taken.contains("`[database]`: url") && tables.len() >= 10 && taken.len() >= 50, "{taken:?}");
    let page = page();
    let mut shown = BTreeSet::new();
    for row in key_rows(&page) {
        shown.extend(spans_of(&row.cells[0]).map(|key| format!("{}: {key}", row.section)));
    }
    let unknown: Vec<_> = shown.difference(&taken).collect();
    let missing: Vec<_> = taken.difference(&shown).collect();
    assert!(unknown.is_empty() && missing.is_empty(), "{PAGE} lacks {missing:?} and invents {unknown:?}");
}

/// A default on the page is a code span at the start of its cell, unless it depends on something else.
#[test]
fn the_page_of_the_configuration_has_every_default_and_no_other() {
    let variables = environment(&[
        ("database__service", "orders"),
        ("databases__acme__service", "acme"),
        ("destinations__nats__kind", "nats"),
        ("destinations__bus__kind", "eventbridge"),
        ("destinations__bus__bus", "orders"),
        ("vendors__mail__profile", "resend"),
        ("vendors__mail__url", "https://api.example.org"),
        ("retry__patient__base", "1s"),
        ("retry__patient__max", "1m"),
        ("retry__patient__attempts", "20"),
    ]);
    let printed = Config::print(None, variables.into_iter()).unwrap();
    let mut in_force = BTreeMap::new();
    for line in printed.lines().filter_map(|line| line.strip_suffix("  # default")) {
        let (path, value) = line.split_once(" = ").unwrap();
        let (table, key) = (path.split('.').next().unwrap(), path.rsplit('.').next().unwrap());
        in_force.insert((table.to_owned(), key.to_owned()), value.to_owned());
    }
    assert!(in_force.len() > 15, "{in_force:?}");
    let page = page();
    let mut faults = Vec::new();
    for row in key_rows(&page) {
        let table = row.section.trim_start_matches("`[").split([']', '.']).next().unwrap();
        let key = spans_of(&row.cells[0]).next().unwrap_or_default();
        let shown = spans_of(&row.cells[2]).next().filter(|_| row.cells[2].starts_with('`'));
        match (shown, in_force.remove(&(table.to_owned(), key.to_owned()))) {
            (Some(shown), Some(value)) if is_same(shown, &value) => {}
            (None, None) => {}
            (shown, value) => faults.push(format!("{table}.{key}: {value:?}, on the page {shown:?}")),
        }
    }
    expect_none("defaults in force, and on the page", &faults);
    assert!(in_force.is_empty(), "the page has no rows for {in_force:?}");
}

/// `7d` and `7days` are the same.
fn is_same(shown: &str, value: &str) -> bool {
    let (shown, value) = (shown.trim_matches('"'), value.trim_matches('"'));
    let durations = (shown.parse::<Duration>(), value.parse::<Duration>());
    shown == value || matches!(durations, (Ok(shown), Ok(value)) if shown == value)
}

#[test]
fn the_example_of_the_configuration_has_every_table() {
    let page = page();
    let example = page.blocks.iter().find(|block| block.language == "toml").expect("the page has an example");
    let example = Vec::from_iter(example.commands().map(|(_, line)| line)).join("\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    std::fs::write(&file, &example).unwrap();
    Config::load(Some(&file), std::iter::empty()).unwrap();
    for heading in tables().into_keys() {
        let table = spans_of(&heading).next().unwrap().trim_end_matches("NAME]");
        let kind = spans_of(&heading).nth(1).unwrap_or_default();
        assert!(example.contains(table) && example.contains(kind), "the example has no {heading}");
    }
}

/// The words of a text that begin as our variables do.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("TWINBOX_") && is_variable(word))
}

fn is_variable(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(char::is_alphabetic) && text.contains('_') && text.chars().all(is_allowed)
}

/// Whether the rest of a variable of the relay leads to a key. The prefix alone names all of them.
fn is_key(tables: &Tables, path: &str) -> bool {
    let has = |heading: &str, key: &str| {
        tables.iter().any(|(table, keys)| table.starts_with(heading) && keys.contains(key))
    };
    match *path.to_lowercase().split("__").collect::<Vec<_>>() {
        [table, key] => has(&format!("`[{table}]`"), key),
        [table, _, key] => has(&format!("`[{table}.NAME]`"), key),
        _ => path.is_empty(),
    }
}

#[test]
fn every_variable_that_a_page_names_exists() {
    let texts = Vec::from_iter(files::texts());
    let is_code = |name: &str| {
        let is_program = ["crates/", "xtask/"].iter().any(|folder| name.starts_with(folder));
        let is_test = name.starts_with("integration-tests/");
        name.ends_with(".rs") && (is_test || is_program && !name.contains("/tests"))
    };
    let code = texts.iter().filter(|(name, _)| is_code(name));
    let known = BTreeSet::from_iter(code.flat_map(|(_, text)| variables(text)));
    assert!(known.contains("TWINBOX_NAMESPACE") && known.len() > 10, "{known:?}");
    let tables = tables();
    let (mut named, mut faults) = (0, Vec::new());
    for (name, text) in texts.iter().filter(|(name, _)| name.ends_with(".md")) {
        for variable in variables(text) {
            let exists = match variable.strip_prefix(ENVIRONMENT_PREFIX) {
                Some(path) => is_key(&tables, path),
                None => known.contains(variable),
            };
            named += 1;
            if !exists {
                faults.push(format!("{name}: {variable}"));
            }
        }
    }
    assert!(named > 20, "{named} variables");
    expect_none("nothing reads these variables", &faults);
}

/// Texts of the code in capitals. Those after `value_name` are words of the help, and `env!` reads what Cargo
/// sets.
fn read_by(code: &str) -> Vec<&str> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let parts = Vec::from_iter(code.split('"'));
    let texts =
        parts.windows(2).filter(|pair| !["value_name = ", "env!("].iter().any(|end| pair[0].ends_with(end)));
    texts.map(|pair| pair[1]).filter(|text| is_variable(text)).collect()
}

#[test]
fn the_page_of_the_configuration_has_every_variable_and_no_other() {
    let is_program = |name: &str| {
        let folders = ["crates/twinbox-cli/src/", "crates/twinbox-relay/src/"];
        folders.iter().any(|f| name.starts_with(f)) && !name.contains("/tests")
    };
    let texts = Vec::from_iter(files::texts().filter(|(name, _)| is_program(name)));
    let read = BTreeSet::from_iter(texts.iter().flat_map(|(_, text)| read_by(text)));
    assert!(read.contains("DATABASE_URL_FILE") && read.len() >= 10, "{read:?}");
    let page = page();
    let spans = BTreeSet::from_iter(page.spans.iter().map(|(_, span)| span.as_str()));
    let missing: Vec<_> = read.difference(&spans).collect();
    let rows = page.rows.iter().filter(|row| row.section.starts_with("Environment"));
    let shown = BTreeSet::from_iter(rows.flat_map(|row| spans_of(&row.cells[0])));
    let unknown: Vec<_> = shown.difference(&read).collect();
    assert!(unknown.is_empty() && missing.is_empty(), "{PAGE} lacks {missing:?} and invents {unknown:?}");
}

#[test]
fn variables_are_found() {
    let code = "env = \"TWINBOX_AS\", value_name = \"A_B\", get(\"C_D\"), split(\"__\"), \"e_f\"";
    let code = format!("{code}\n#[cfg(test)]\nmod tests {{ \"G_H\" }}");
    assert_eq!(read_by(&code), ["TWINBOX_AS", "C_D"]);
    assert_eq!(
        Vec::from_iter(variables("`TWINBOX_AS=x`, TWINBOX_RELAY__…")),
        ["TWINBOX_AS", "TWINBOX_RELAY__"]
    );
    let tables = tables();
    assert!(is_key(&tables, "DATABASE__URL") && is_key(&tables, "DESTINATIONS__ORDERS__PARTITIONS"));
    assert!(!is_key(&tables, "DATABASE__PARTITIONS") && !is_key(&tables, "DESTINATIONS__PARTITIONS"));
}
