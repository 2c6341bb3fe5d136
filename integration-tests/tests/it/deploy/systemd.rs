//! The program under systemd.
mod notify;
mod page;
mod unit;

use crate::support::wait::in_time;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::{
    net::UnixDatagram,
    process::{Child, Command},
};

const UNIT: &str = include_str!("../../../../crates/twinbox-relay/systemd/twinbox-relay.service");

/// The side of systemd that programs notify.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { socket: UnixDatagram::bind(folder.path().join("notify")).unwrap(), folder }
    }

    fn address(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// Reads up to a notification with a line that begins with one of these. Returns all lines.
    async fn until(&self, begins: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut datagram = [0; 4096];
            let length = in_time(self.socket.recv(&mut datagram)).await.unwrap();
            let new = String::from_utf8_lossy(&datagram[..length]).into_owned();
            lines.extend(new.lines().map(str::to_owned));
            if new.lines().any(|line| begins.iter().any(|begin| line.starts_with(begin))) {
                return lines;
            }
        }
    }

    /// Returns the lines of all notifications that are there.
    fn rest(&self) -> Vec<String> {
        let (mut lines, mut datagram) = (Vec::new(), [0; 4096]);
        while let Ok(length) = self.socket.try_recv(&mut datagram) {
            lines.extend(String::from_utf8_lossy(&datagram[..length]).lines().map(str::to_owned));
        }
        lines
    }
}

/// Stops a program as systemd does. Returns its exit code.
async fn stop(mut program: Child) -> Option<i32> {
    let terminate = format!("kill -TERM {}", program.id().unwrap());
    assert!(Command::new("sh").args(["-c", &terminate]).status().await.unwrap().success());
    in_time(program.wait()).await.unwrap().code()
}
