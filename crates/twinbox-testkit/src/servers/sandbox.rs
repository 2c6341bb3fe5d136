//! A private folder, the server that works in it, and the guard that cleans up after both.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{mem, thread};

use super::ServerError;

const GUARD: &str = include_str!("guard.sh");
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
const LOG_TAIL_LINES: usize = 30;
/// Below the ports the kernel hands to outgoing connections: a client that keeps reconnecting to a stopped
/// server could otherwise be given that very port, connect to itself, and keep the server from coming back.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const PORT_TRIES: u32 = 200;
/// How often a server is started anew because someone else took its port first.
pub(super) const START_TRIES: u32 = 10;

#[derive(Debug)]
pub(super) struct Sandbox {
    dir: PathBuf,
    server: Option<Child>,
    /// How the server is told to go when nothing is to be kept.
    quit: &'static str,
    /// `None` once the server was left running.
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

    /// Starts the server and waits until `ready` (given its process id) has an answer.
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
            false => "it ended at once".to_owned(),
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
        // The shell's own `kill`: small systems have no program of that name.
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

    /// Stops all threads. The signal alone returns while some of them may still be running.
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

    /// Sends the signal and waits for the end; a server that does not end in time is killed.
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
        // Gone already when the server never came so far.
        let _ = fs::remove_file(self.dir.join("pid"));
        Ok(())
    }

    pub(super) fn leave_running(mut self) -> Result<Detached, ServerError> {
        let Some(server) = self.server.take() else {
            return Err(ServerError::new("cannot leave a server running that is stopped"));
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
        // Should this fail, the guard tries the same.
        let _ = self.stop(self.quit);
        drop(guard.stdin.take());
        let _ = guard.wait();
    }
}

/// A server that outlives the process that started it.
#[derive(Debug, Clone)]
pub struct Detached {
    /// Its private folder: data, configuration and `log`.
    pub dir: PathBuf,
    /// Its process id.
    pub pid: u32,
}

impl Detached {
    /// Whether the process still runs and is this server, not a later program with the same id.
    pub fn is_running(&self) -> bool {
        let command_line = fs::read(format!("/proc/{}/cmdline", self.pid)).or_else(|_| {
            let pid = self.pid.to_string();
            Command::new("ps").args(["-o", "command=", "-p", &pid]).output().map(|output| output.stdout)
        });
        let dir = self.dir.to_string_lossy();
        command_line.is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*dir))
    }

    /// Stops the server, if it runs, and deletes its folder. Stopping it twice does no harm.
    ///
    /// # Errors
    ///
    /// When the folder is still there afterwards.
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

/// A port that was free a moment ago; whoever binds it must be ready to lose the race.
pub(super) fn free_port() -> Result<u16, ServerError> {
    let random = RandomState::new();
    let span = u64::from(PORTS.end - PORTS.start);
    (0..PORT_TRIES)
        .map(|attempt| PORTS.start + (random.hash_one(attempt) % span) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| ServerError::new(format!("no free port of 127.0.0.1 in {PORTS:?}")))
}

/// Runs `launch` again while someone else holds the port, a little later each time.
pub(super) fn retry_port<T>(mut launch: impl FnMut() -> Result<T, ServerError>) -> Result<T, ServerError> {
    for _ in 1..START_TRIES {
        match launch() {
            Err(error) if error.port_taken => thread::sleep(Duration::from_millis(200)),
            result => return result,
        }
    }
    launch()
}

/// Only Linux tells; elsewhere the answer is yes.
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
