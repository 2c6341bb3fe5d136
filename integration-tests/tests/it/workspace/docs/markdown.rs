//! The parts of a Markdown page that the tests look at.
use std::path::{Component, Path, PathBuf};

/// A page, read once.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) name: String,
    /// Anchors written as `id="…"`.
    pub(super) ids: Vec<String>,
    /// Anchors that headings get.
    headings: Vec<String>,
    /// Targets of links, with their lines.
    pub(super) links: Vec<(usize, String)>,
    /// Code spans, with their lines.
    pub(super) spans: Vec<(usize, String)>,
    pub(super) blocks: Vec<Block>,
    pub(super) rows: Vec<Row>,
}

/// A row of a table. The head of the table is none.
#[derive(Debug)]
pub(super) struct Row {
    /// The text of the heading above.
    pub(super) section: String,
    pub(super) cells: Vec<String>,
}

/// A fenced block of code.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) language: String,
    lines: Vec<(usize, String)>,
}

impl Page {
    pub(super) fn new(name: String, text: &str) -> Self {
        let (mut prose, mut blocks) = (String::new(), Vec::new());
        let mut open: Option<Block> = None;
        for (number, line) in (1..).zip(text.lines()) {
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => {
                    open = Some(Block { language: language.trim().into(), lines: vec![] })
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.lines.push((number, line.to_owned())),
                (None, None) => prose.push_str(line),
            }
            prose.push('\n');
        }
        assert!(open.is_none(), "{name}: a block of code has no end");
        let (plain, spans) = without_spans(&prose);
        let headings = prose.lines().filter(|line| line.starts_with('#')).map(slug).collect();
        let ids = between(&plain, "id=\"", '"').into_iter().map(|(_, id)| id).collect();
        let mut links = between(&plain, "](", ')');
        links.extend(between(&plain, "]: ", '\n'));
        Self { name, ids, headings, links, spans, blocks, rows: rows(&prose) }
    }

    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        self.ids.iter().chain(&self.headings).any(|known| known == anchor)
    }
}

impl Block {
    /// The commands of the block with their lines. A line that ends with `\` continues.
    pub(super) fn commands(&self) -> impl Iterator<Item = (usize, String)> {
        let mut commands: Vec<(usize, String)> = Vec::new();
        let mut continues = false;
        for (number, line) in &self.lines {
            let (line, goes_on) = match line.strip_suffix('\\') {
                Some(line) => (line, true),
                None => (line.as_str(), false),
            };
            match commands.last_mut() {
                Some((_, last)) if continues => last.push_str(line),
                _ => commands.push((*number, line.to_owned())),
            }
            continues = goes_on;
        }
        commands.into_iter()
    }
}

/// The text with an `x` for each code span, and the spans with their lines.
fn without_spans(prose: &str) -> (String, Vec<(usize, String)>) {
    let (mut plain, mut spans, mut line) = (String::new(), Vec::new(), 1);
    for (n, part) in prose.split('`').enumerate() {
        if n % 2 == 0 {
            plain.push_str(part);
        } else {
            spans.push((line, part.split_whitespace().collect::<Vec<_>>().join(" ")));
            plain.push('x');
            plain.extend(part.chars().filter(|c| *c == '\n'));
        }
        line += part.matches('\n').count();
    }
    (plain, spans)
}

/// The code spans of a line or a cell.
pub(super) fn spans_of(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn rows(prose: &str) -> Vec<Row> {
    let (mut rows, mut section) = (Vec::<Row>::new(), String::new());
    for line in prose.lines() {
        if line.starts_with('#') {
            section = line.trim_start_matches('#').trim().to_owned();
        } else if line.starts_with("|---") {
            // The row above is the head.
            rows.pop();
        } else if let Some(row) = line.trim_end().strip_prefix('|') {
            let row = row.strip_suffix('|').unwrap_or(row);
            let cells = row.split('|').map(|cell| cell.trim().to_owned()).collect();
            rows.push(Row { section: section.clone(), cells });
        }
    }
    rows
}

/// What stands between `before` and `after`, with its lines.
fn between(text: &str, before: &str, after: char) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut line = 1;
    for (n, part) in text.split(before).enumerate() {
        if n > 0 {
            found.extend(part.split_once(after).map(|(inner, _)| (line, inner.to_owned())));
        }
        line += part.matches('\n').count();
    }
    found
}

/// The anchor of a heading, as mdBook and forges make it.
fn slug(heading: &str) -> String {
    let mut text = heading.trim_start_matches('#').trim().to_owned();
    while let (Some(from), Some(to)) = (text.find('<'), text.find('>')) {
        text.replace_range(from..=to, "");
    }
    let text = text.to_lowercase();
    let kept = text.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect()
}

/// The path in the tree of a file that `page` names by a relative path. None: it is outside.
pub(super) fn beside(page: &str, path: &str) -> Option<String> {
    let mut whole = PathBuf::new();
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    for component in folder.join(path).components() {
        match component {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => whole.pop().then_some(())?,
            Component::CurDir => {}
            _ => return None,
        }
    }
    whole.into_os_string().into_string().ok()
}

#[test]
fn the_parts_of_a_page_are_found() {
    let page = "# A `b` C\n[one](x.md#y) `code\nspan`\n<a id=\"r1\"></a>\n```sh\na \\\n  \
                b\n[no](link)\n```\n[two](z)\n";
    let page = Page::new("docs/p.md".into(), page);
    assert_eq!(page.links, [(2, "x.md#y".to_owned()), (10, "z".to_owned())]);
    assert_eq!(page.spans, [(1, "b".to_owned()), (2, "code span".to_owned())]);
    assert!(page.has_anchor("r1") && page.has_anchor("a-b-c") && !page.has_anchor("r2"));
    let commands = Vec::from_iter(page.blocks[0].commands());
    assert_eq!(commands, [(6, "a   b".to_owned()), (8, "[no](link)".to_owned())]);
    let table = Page::new("docs/t.md".into(), "## A `b`\n| c | d |\n|---|---|\n| `e` `f` | |\n");
    let [row] = &*table.rows else { panic!("there is one row: {:?}", table.rows) };
    assert_eq!((&*row.section, &*row.cells), ("A `b`", &["`e` `f`".to_owned(), String::new()][..]));
    assert_eq!(Vec::from_iter(spans_of(&row.cells[0])), ["e", "f"]);
    assert_eq!(beside("docs/p.md", "../README.md").as_deref(), Some("README.md"));
    assert_eq!(beside("p.md", "../README.md"), None);
}
