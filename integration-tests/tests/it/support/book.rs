//! The README of the tool, as steps that are taken.
use super::{
    stores::{TestDb, World},
    tool::{Ran, Tool},
    wait::in_time,
};

pub(crate) const README: &str = include_str!("../../../../crates/twinbox-cli/README.md");

/// The steps of an incident: commands, and what others have to do.
fn incident(title: &str) -> Vec<&'static str> {
    let section =
        README.split("\n### ").find(|section| section.starts_with(title)).expect("it is in the README");
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    block.lines().collect()
}

/// The words of a command as a shell takes them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    assert_eq!(words.remove(0), "twinbox", "{line}");
    words
}

/// Goes through the steps of one incident.
pub(crate) struct Book {
    tool: Tool,
    steps: std::vec::IntoIter<&'static str>,
    pub(crate) folder: tempfile::TempDir,
}

impl Book {
    pub(crate) fn open<DB: TestDb>(world: &World<DB>, title: &str) -> Self {
        Self::with(Tool::of(world), title)
    }

    pub(crate) fn with(tool: Tool, title: &str) -> Self {
        Self { tool, steps: incident(title).into_iter(), folder: tempfile::tempdir().unwrap() }
    }

    /// Runs the next command.
    pub(crate) async fn ran(&mut self) -> Ran {
        let line = self.steps.next().expect("there is another step");
        let words = words(line);
        let mut command = self.tool.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let ran = in_time(command.current_dir(self.folder.path()).output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
    }

    /// The same; it ends well, and says this.
    pub(crate) async fn says(&mut self, what: &str) {
        let ran = self.ran().await;
        assert!(ran.code == 0 && format!("{}{}", ran.out, ran.err).contains(what), "{what:?}: {ran:?}");
    }

    /// The next step is somebody else's.
    pub(crate) fn others(&mut self, begins: &str) {
        let line = self.steps.next().expect("there is another step");
        assert!(line.starts_with(&format!("# {begins}")), "{line}");
    }

    /// Goes to another database.
    pub(crate) fn go_to(&mut self, tool: Tool) {
        self.tool = tool;
    }

    pub(crate) fn close(mut self) {
        assert_eq!(self.steps.next(), None, "every step was taken");
    }
}
