//! The table of who is trusted with what: each row names the tests that show it.
use super::{expect_none, files};

const PAGE: &str = "docs/src/security.md";
const HEAD: &str = "| who | may | may not, whatever it sends or holds | tested by |";

#[test]
fn every_limit_of_trust_has_a_test() {
    let mut page = String::new();
    let mut functions = String::new();
    for (name, text) in files::texts() {
        if name == PAGE {
            page = text;
        } else if name.starts_with("integration-tests/tests/it/") && name.ends_with(".rs") {
            functions += &text;
        }
    }
    let (_, table) = page.split_once(HEAD).expect("the page has the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut missing = Vec::new();
    let mut count = 0;
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let tests = Vec::from_iter(tests.split('`').skip(1).step_by(2));
        missing.extend(tests.is_empty().then(|| format!("{row} names no test")));
        for test in tests {
            let is_there = ["(", "<"].iter().any(|end| functions.contains(&format!("fn {test}{end}")));
            missing.extend((!is_there).then(|| format!("there is no test {test}")));
        }
        count += 1;
    }
    assert!(count > 10, "{count} rows");
    expect_none(PAGE, &missing);
}
