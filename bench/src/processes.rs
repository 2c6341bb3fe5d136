//! The processor time of other processes, from `/proc`.
use crate::failure::Failure;
use std::{fs, path::Path};

/// Clock ticks of the kernel in a second, on every machine that Rust's Linux targets run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process with its children, such as a server with a process for each connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family(u32);

impl Family {
    pub(crate) fn of(process: u32) -> Self {
        Self(process)
    }

    /// Finds the server that has this URL, on this machine.
    ///
    /// # Errors
    /// There is none, or it belongs to another user.
    pub(crate) fn serving(url: &str) -> Result<Self, Failure> {
        let port = port_of(url)?;
        let socket = listening_socket(port)?.ok_or(format!("nobody listens on port {port}"))?;
        let target = format!("socket:[{socket}]");
        let found = processes()?.into_iter().filter(|process| {
            let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
            let is_target = |path: &Path| fs::read_link(path).is_ok_and(|link| *link == *target);
            files.flatten().any(|file| is_target(&file.path()))
        });
        // A server's children inherit its socket.
        Ok(Self(found.min().ok_or(format!("the process that listens on port {port} is not ours"))?))
    }

    /// Returns the processor time of the processes, in seconds, with that of children that have ended.
    pub(crate) fn seconds(self) -> Result<f64, Failure> {
        let children = processes()?.into_iter().filter_map(|process| Stat::of(process).ok());
        let children = children.filter(|stat| stat.parent == self.0).map(|stat| stat.ticks);
        Ok((Stat::of(self.0)?.ticks + children.sum::<f64>()) / TICKS_PER_SECOND)
    }
}

struct Stat {
    parent: u32,
    /// With those of children that have ended.
    ticks: f64,
}

impl Stat {
    fn of(process: u32) -> Result<Self, Failure> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |n: usize| fields.get(n).copied().ok_or("a short line in /proc");
        let ticks = |n: usize| Ok::<_, Failure>(field(n)?.parse::<f64>()?);
        let (own, of_ended_children) = (ticks(11)? + ticks(12)?, ticks(13)? + ticks(14)?);
        Ok(Self { parent: field(1)?.parse()?, ticks: own + of_ended_children })
    }
}

/// Returns the most memory that a process has had, in MiB.
pub(crate) fn memory_max(process: u32) -> Result<f64, Failure> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(kib.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

fn processes() -> Result<Vec<u32>, Failure> {
    let names = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// Returns the inode of the socket that listens on a port.
fn listening_socket(port: u16) -> Result<Option<String>, Failure> {
    let (suffix, listening) = (format!(":{port:04X}"), "0A");
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = fs::read_to_string(table).unwrap_or_default();
        for line in table.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..]
                && local.ends_with(&suffix)
                && state == listening
            {
                return Ok(Some(inode.to_owned()));
            }
        }
    }
    Ok(None)
}

fn port_of(url: &str) -> Result<u16, Failure> {
    let host = url.split("://").nth(1).unwrap_or(url).split('/').next().unwrap_or_default();
    let port = host.rsplit(':').next().unwrap_or_default();
    port.parse().map_err(|_| format!("the address of a server names no port: {host}").into())
}
