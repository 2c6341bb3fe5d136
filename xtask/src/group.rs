//! A child process that ends, with all processes it starts, when xtask ends.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use crate::error::Result;

/// Kills the process group `$0` when its standard input closes. It closes when xtask ends, even by SIGKILL.
/// A line on the standard input ends the guard and leaves the group alone.
const GUARD: &str = "trap '' HUP INT TERM; read -r _ || kill -s KILL -- \"-$0\"";

/// A child in its own process group. Ctrl-C reaches only xtask; the guard then kills the group.
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
