//! A private folder, the server in it, and the guard that deletes both.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{mem, thread};

use super::error::ServerError;

const GUARD: &str = include_str!("guard.sh");
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
const LOG_TAIL_LINES: usize = 30;
/// Below the ports of outgoing connections. Otherwise a client that connects again and again to a stopped
/// server could get the port of the server, connect to itself, and keep the server from starting again.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const PORT_TRIES: u32 = 200;
/// Number of starts of a server whose port another program took first.
pub(super) const START_TRIES: u32 = 10;

#[derive(Debug)]
pub(super) struct Sandbox {
    dir: PathBuf,
    server: Option<Child>,
    /// The signal that stops the server when its data need not be kept.
    quit: &'static str,
    /// `None` after the server was left running.
    guard: Option<Child>,
}

impl Sandbox {
    pub(super) fn new(parent: &Path, name: &str, quit: &'static str) -> Result<Self, ServerError> {
        let failed =
            |source| ServerError::io(format!("cannot make a folder in {}", parent.display()), source);
        let dir = tempfile::Builder::new()
            .prefix(&format!("twinbox-{name}-"))
            .tempdir_in(parent)
            .map_err(failed)?;
        let guard = guard(dir.path(), Stdio::piped())?;
        Ok(Self { dir: dir.keep(), server: None, quit, guard: Some(guard) })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| matches!(server.try_wait(), Ok(None)))
    }

    /// Starts the server and waits until `ready` returns a value for its process id.
    pub(super) fn launch<T>(
        &mut self,
        mut command: Command,
        ready: impl Fn(u32) -> Option<T>,
    ) -> Result<T, ServerError> {
        let doing = format!("cannot start {}", command.get_program().display());
        let log = self.dir.join("log");
        let output = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) =
            output.map_err(|source| ServerError::io(format!("{doing}: no log"), source))?;
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
        let server = command.spawn().map_err(|source| ServerError::io(&doing, source))?;
        let pid = server.id();
        self.server = Some(server);
        fs::write(self.dir.join("pid"), format!("{pid} {}\n", self.quit))
            .map_err(|source| ServerError::io(&doing, source))?;

        let deadline = Instant::now() + START_MAX;
        while self.is_running() && Instant::now() < deadline {
            if let Some(answer) = ready(pid) {
                return Ok(answer);
            }
            thread::sleep(POLL);
        }
        let problem = match self.is_running() {
            true => format!("it was not ready within {} s", START_MAX.as_secs()),
            false => "it ended before it was ready".to_owned(),
        };
        self.stop("KILL")?;
        let tail = tail(&log);
        let port_taken = tail.to_ascii_lowercase().contains("address already in use");
        let message = format!("{doing}: {problem}; the end of its log:\n{tail}");
        Err(ServerError { message, source: None, port_taken })
    }

    pub(super) fn signal(&self, signal: &str) -> Result<(), ServerError> {
        let Some(server) = &self.server else {
            return Err(ServerError::new(format!("cannot send SIG{signal}: the server is not running")));
        };
        // `kill` of the shell, because small systems have no program of that name.
        let pid = server.id().to_string();
        let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &pid]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(ServerError::new(format!("cannot send SIG{signal} to process {pid}: {status}")))
            }
            Err(source) => Err(ServerError::io("cannot run sh", source)),
        }
    }

    /// Freezes the server and waits until all its threads have stopped, which they do after the signal was
    /// sent.
    pub(super) fn pause(&self) -> Result<(), ServerError> {
        self.signal("STOP")?;
        let pid = self.server.as_ref().map(Child::id).expect("it was just sent a signal");
        let deadline = Instant::now() + STOP_MAX;
        while !all_threads_stopped(pid) {
            if Instant::now() > deadline {
                return Err(ServerError::new(format!("cannot pause process {pid}")));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Sends the signal and waits until the server has ended. Kills it after [`STOP_MAX`].
    pub(super) fn stop(&mut self, signal: &str) -> Result<(), ServerError> {
        if self.is_running() {
            self.signal(signal)?;
        }
        let deadline = Instant::now() + STOP_MAX;
        while self.is_running() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let ended = server.kill().and_then(|()| server.wait());
        ended.map_err(|source| ServerError::io(format!("cannot end process {}", server.id()), source))?;
        // The file does not exist if the server did not start.
        let _ = fs::remove_file(self.dir.join("pid"));
        Ok(())
    }

    pub(super) fn leave_running(mut self) -> Result<Detached, ServerError> {
        let Some(server) = self.server.take() else {
            return Err(ServerError::new("cannot leave a stopped server running"));
        };
        let mut guard = self.guard.take().expect("only taken here, and this takes the sandbox");
        let told = guard.stdin.take().map(|mut stdin| stdin.write_all(b"leave\n"));
        told.transpose()
            .and_then(|_| guard.wait())
            .map_err(|source| ServerError::io("cannot dismiss the guard", source))?;
        Ok(Detached { dir: mem::take(&mut self.dir), pid: server.id() })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        // If this fails, the guard tries it too.
        let _ = self.stop(self.quit);
        drop(guard.stdin.take());
        let _ = guard.wait();
    }
}

/// A server process that outlives the process that started it.
#[derive(Debug, Clone)]
pub struct Detached {
    /// The private folder of the server: data, configuration and `log`.
    pub dir: PathBuf,
    /// The process id of the server.
    pub pid: u32,
}

impl Detached {
    /// Returns whether the server runs. Another program with the same process id does not count.
    pub fn is_running(&self) -> bool {
        let command_line = fs::read(format!("/proc/{}/cmdline", self.pid)).or_else(|_| {
            let pid = self.pid.to_string();
            Command::new("ps").args(["-o", "command=", "-p", &pid]).output().map(|output| output.stdout)
        });
        let dir = self.dir.to_string_lossy();
        command_line.is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*dir))
    }

    /// Stops the server, if it runs, and deletes its folder. Does nothing the second time.
    ///
    /// # Errors
    ///
    /// The folder cannot be deleted.
    pub fn stop(&self) -> Result<(), ServerError> {
        let ended = guard(&self.dir, Stdio::null())?.wait();
        let status = ended.map_err(|source| ServerError::io("cannot wait for the guard", source))?;
        match self.dir.exists() {
            true => Err(ServerError::new(format!("cannot delete {} ({status})", self.dir.display()))),
            false => Ok(()),
        }
    }
}

fn guard(dir: &Path, stdin: Stdio) -> Result<Child, ServerError> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(GUARD).arg("twinbox-guard").arg(dir).process_group(0).current_dir("/");
    let spawned = command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    spawned.map_err(|source| ServerError::io("cannot run sh", source))
}

/// Returns a port that is free now. Another program may take it before the caller does.
pub(crate) fn free_port() -> Result<u16, ServerError> {
    let random = RandomState::new();
    let span = u64::from(PORTS.end - PORTS.start);
    (0..PORT_TRIES)
        .map(|attempt| PORTS.start + (random.hash_one(attempt) % span) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| ServerError::new(format!("no free port of 127.0.0.1 in {PORTS:?}")))
}

/// Runs `launch` again, with a pause, while another program has the port.
pub(super) fn retry_port<T>(mut launch: impl FnMut() -> Result<T, ServerError>) -> Result<T, ServerError> {
    for _ in 1..START_TRIES {
        match launch() {
            Err(error) if error.port_taken => thread::sleep(Duration::from_millis(200)),
            result => return result,
        }
    }
    launch()
}

/// Returns whether all threads of the process have stopped. On other systems than Linux always true.
fn all_threads_stopped(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    // `pid (name) state …`, and the name may hold anything.
    let state = |stat: &str| stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
        .all(|stat| matches!(state(&stat), Some('T' | 'Z' | 'X')))
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
