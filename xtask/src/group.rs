//! A child and all that it starts, ended together with this process.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use crate::Result;

/// Its standard input closes when xtask ends, however it ends; a line on it means that all went well.
const GUARD: &str = "trap '' HUP INT TERM; read -r _ || kill -s KILL -- \"-$0\"";

/// A child that leads a process group of its own. Ctrl-C reaches xtask only; the guard then ends the group.
pub(crate) struct Group {
    child: Child,
    guard: Child,
}

impl Group {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, &child.id().to_string()]).process_group(0);
        let guard = guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, guard })
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) fn wait(mut self) -> Result<ExitStatus> {
        let status = self.child.wait()?;
        self.guard.stdin.take().map(|mut stdin| stdin.write_all(b"done\n")).transpose()?;
        self.guard.wait()?;
        Ok(status)
    }
}
