//! Log lines on their way to stderr, which may be a pipe that nobody reads: whoever logs never waits.
use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written. What comes then is dropped and counted.
const WAITING_MAX: usize = 4096;
/// How long the last lines may take at the end.
const FINISH_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Log {
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

enum Line {
    Text(Vec<u8>),
    /// All before it are written when this is dropped.
    Last(SyncSender<()>),
}

impl Log {
    /// Starts the thread that writes.
    pub(crate) fn to_stderr() -> Self {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = dropped.clone();
        thread::spawn(move || write(&waiting, &counted));
        Self { lines, dropped }
    }

    /// Waits until everything is written, if somebody reads it.
    pub(crate) fn finish(&self) {
        let (last, written) = sync_channel(0);
        if self.lines.try_send(Line::Last(last)).is_ok() {
            let _ = written.recv_timeout(FINISH_MAX);
        }
    }
}

fn write(waiting: &Receiver<Line>, dropped: &AtomicU64) {
    let mut stderr = io::stderr();
    for line in waiting {
        // Where a log cannot be written, nobody can be told.
        let _ = match line {
            Line::Text(line) => stderr.write_all(&line),
            Line::Last(last) => return drop(last),
        };
        match dropped.swap(0, Relaxed) {
            0 => {}
            lines => drop(writeln!(stderr, "{lines} lines of the log were dropped: nobody read them")),
        }
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Line::Text(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
