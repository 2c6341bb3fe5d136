//! The documents: each cited number, link, file and command that stands in them exists.
//!
//! `cargo xtask test workspace::docs` runs these tests alone. Each failure lists all places to mend.
mod cited;
mod codes;
mod commands;
mod configuration;
mod markdown;
mod metrics;
mod trust;
mod urls;

use super::{files, packages, root, text};
use markdown::Page;
use std::collections::BTreeSet;

const BOOK: &str = "docs/src/";

/// Hosts of package registries. A link there names a version that grows old.
const REGISTRIES: &[&str] = &["crates.io", "docs.rs", "npmjs.com", "pypi.org"];

/// Every Markdown file of the tree.
fn pages() -> Vec<Page> {
    let pages = files::texts().filter(|(name, _)| name.ends_with(".md"));
    let pages = Vec::from_iter(pages.map(|(name, text)| Page::new(name, &text)));
    assert!(pages.iter().any(|page| page.name == "README.md"), "the tree has a README");
    pages
}

/// The pages whose code spans name files of the tree.
fn guides() -> impl Iterator<Item = Page> {
    let guide = |name: &str| name.starts_with(BOOK) || ["README.md", "CONTRIBUTING.md"].contains(&name);
    pages().into_iter().filter(move |page| guide(&page.name))
}

/// Fails with one line for each fault.
fn expect_none(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
}

#[test]
fn every_cited_number_has_an_anchor() {
    let book = pages().into_iter().filter(|page| page.name.starts_with(BOOK));
    let anchors = BTreeSet::from_iter(book.flat_map(|page| page.ids));
    for known in ["r1", "r75", "d1", "d29", "t1", "t32", "fault-1", "fault-55", "i1", "i11", "trap-12"] {
        assert!(anchors.contains(known), "no page of the book has an anchor {known}");
    }
    let mut missing = Vec::new();
    for (name, code) in files::texts().filter(|(name, _)| name.ends_with(".rs")) {
        for (line, anchor) in cited::in_rust(&code) {
            if !anchors.contains(&anchor) {
                missing.push(format!("{name}:{line} cites {anchor}"));
            }
        }
    }
    expect_none("no page of docs/src has these anchors", &missing);
}

/// Only their numbers are cited, which stand in the book.
#[test]
fn no_comment_names_a_document_outside_of_the_tree() {
    let words = [concat!("REQUIRE", "MENTS"), concat!("PIT", "FALLS")];
    let mut found = Vec::new();
    for (name, code) in files::texts().filter(|(name, _)| name.ends_with(".rs")) {
        for (number, line) in (1..).zip(code.lines()) {
            found.extend(
                words.iter().filter(|word| line.contains(**word)).map(|w| format!("{name}:{number} has {w}")),
            );
        }
    }
    expect_none("cite requirement R37, decision D7, test t18, fault 12, trap 3 or invariant I10", &found);
}

#[test]
fn every_anchor_stands_once_on_its_page() {
    let mut twice = Vec::new();
    for page in pages() {
        let mut seen = BTreeSet::new();
        twice.extend(page.ids.iter().filter(|id| !seen.insert(*id)).map(|id| format!("{}: {id}", page.name)));
    }
    expect_none("these anchors stand twice on a page", &twice);
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    for page in &pages {
        for (line, target) in &page.links {
            if let Err(reason) = follow(&pages, page, target) {
                broken.push(format!("{}:{line} {target}: {reason}", page.name));
            }
        }
    }
    expect_none("these links are broken", &broken);
}

/// An error says why the link leads nowhere.
fn follow(pages: &[Page], from: &Page, target: &str) -> Result<(), &'static str> {
    if let Some(external) = target.strip_prefix("https://") {
        let host = external.split(['/', '#']).next().unwrap_or_default();
        let host = host.strip_prefix("www.").unwrap_or(host);
        return if REGISTRIES.contains(&host) { Err("is a package registry") } else { Ok(()) };
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return Err("is not https");
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let name = match path {
        "" => from.name.clone(),
        path => markdown::beside(&from.name, path).ok_or("leads outside of the tree")?,
    };
    // A built book has no other files.
    if from.name.starts_with(BOOK) && !name.starts_with(BOOK) {
        return Err("leads outside of the book: name the file in a code span");
    }
    if !root().join(&name).exists() {
        return Err("there is no such file");
    }
    let page = pages.iter().find(|page| page.name == name);
    match page {
        _ if anchor.is_empty() => Ok(()),
        Some(page) if page.has_anchor(anchor) => Ok(()),
        _ => Err("there is no such anchor"),
    }
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let pages = pages();
    let summary = pages.iter().find(|page| page.name == "docs/src/SUMMARY.md").expect("the book has one");
    let linked = BTreeSet::from_iter(summary.links.iter().map(|(_, target)| format!("{BOOK}{target}")));
    let book = pages.iter().map(|page| &page.name).filter(|name| name.starts_with(BOOK));
    let missing =
        Vec::from_iter(book.filter(|name| **name != summary.name && !linked.contains(*name)).cloned());
    expect_none("these pages are not in SUMMARY.md", &missing);
}

/// Rust blocks are compiled as doctests of this package.
#[test]
fn every_rust_block_is_a_doctest() {
    let doctests = std::fs::read_to_string(root().join("integration-tests/src/readme.rs")).unwrap();
    let mut missing = Vec::new();
    for page in guides() {
        let has_rust = page.blocks.iter().any(|block| block.language.split(',').next() == Some("rust"));
        if has_rust && !doctests.contains(&format!("include_str!(\"../../{}\")", page.name)) {
            missing.push(page.name);
        }
    }
    expect_none("include these pages in integration-tests/src/readme.rs", &missing);
}

#[test]
fn every_file_that_a_page_names_exists() {
    let mut missing = Vec::new();
    for page in guides() {
        for (line, span) in &page.spans {
            if let Some(Err(reason)) = cited::file(span) {
                missing.push(format!("{}:{line} `{span}`: {reason}", page.name));
            }
        }
    }
    expect_none("these files or tests are not there", &missing);
}

/// Code spans such as `Consumer::lease`, in the changelog too.
#[test]
fn every_item_that_a_page_names_exists() {
    let is_source = |name: &str| name.starts_with("crates/") && name.ends_with(".rs");
    let sources = files::texts().filter(|(name, _)| is_source(name));
    let sources = Vec::from_iter(sources.map(|(_, code)| code));
    let changelog = pages().into_iter().filter(|page| page.name.ends_with("/CHANGELOG.md"));
    let mut missing = Vec::new();
    for page in guides().chain(changelog) {
        for (line, span) in &page.spans {
            let Some((owner, item)) = cited::item(span) else { continue };
            if !sources.iter().any(|code| cited::declares(code, owner, item)) {
                missing.push(format!("{}:{line} `{span}`", page.name));
            }
        }
    }
    expect_none("no crate has these items", &missing);
}

#[test]
fn the_code_map_has_every_package() {
    let map = std::fs::read_to_string(root().join("docs/src/architecture.md")).unwrap();
    let packages = packages();
    let missing =
        packages.iter().filter(|(_, package)| !text(&package["manifest_path"]).contains("/examples/"));
    let missing = missing.filter(|(name, _)| !map.contains(&format!("`{name}`")));
    expect_none(
        "docs/src/architecture.md does not name",
        &Vec::from_iter(missing.map(|(name, _)| name.clone())),
    );
}

/// A row such as ``| `twinbox-log` | `twinbox-core`, `twinbox-sql` |`` names all that a package may import.
#[test]
fn the_import_table_has_every_import() {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let mut faults = Vec::new();
    for (name, package) in packages().iter().filter(|(name, _)| name.starts_with("twinbox-")) {
        let imports = super::imports(package);
        let Some(row) = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))) else {
            faults.push(format!("there is no row for {name}, which imports {imports:?}"));
            continue;
        };
        let missing = imports.iter().filter(|import| !row.contains(&format!("`{import}`")));
        faults.extend(missing.map(|import| format!("the row of {name} does not name {import}")));
    }
    expect_none("the import table of CONTRIBUTING.md", &faults);
}

/// Lines of `sh` blocks, and code spans, that begin with one of our programs.
#[test]
fn every_command_that_is_shown_exists() {
    let mut programs = commands::Programs::default();
    let mut faults = Vec::new();
    for page in pages() {
        let blocks = page.blocks.iter().filter(|block| block.language == "sh");
        let lines = blocks.flat_map(|block| block.commands());
        for (line, command) in lines.chain(page.spans.iter().cloned()) {
            if let Err(reason) = programs.check(&command) {
                faults.push(format!("{}:{line} `{command}`: {reason}", page.name));
            }
        }
    }
    expect_none("these commands are not there", &faults);
}
