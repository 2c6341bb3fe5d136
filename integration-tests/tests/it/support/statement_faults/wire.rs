//! A proxy before Postgres or MySQL that reads the messages of its clients.
use super::{Armed, Fault, Happened, Shared, Silence};
use crate::support::postgres::postgres_address;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Instant,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Handle,
    sync::{Notify, oneshot},
    task::JoinSet,
};

/// Messages of MySQL's clients, by their first byte.
const COM_QUERY: u8 = 3;
const COM_STMT_PREPARE: u8 = 22;
const COM_STMT_EXECUTE: u8 = 23;
/// A message of MySQL that is no command.
const LOGIN: u8 = u8::MAX;
/// The header of a message of MySQL: its length, and its number within one exchange.
const MYSQL_HEADER: usize = 4;
/// Where the first answer to a prepared statement has its number.
const STATEMENT_ID: std::ops::Range<usize> = MYSQL_HEADER + 1..MYSQL_HEADER + 5;

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Postgres,
    MySql,
}

/// Starts a proxy. Returns its port.
pub(super) fn listen(runtime: &Handle, wire: Wire, url: &str, shared: &Arc<Shared>) -> (u16, JoinSet<()>) {
    let _entered = runtime.enter();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let (server, port) = (postgres_address(url), listener.local_addr().unwrap().port());
    let (shared, mut accepting) = (shared.clone(), JoinSet::new());
    accepting.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let (server, shared) = (TcpStream::connect(server).await.unwrap(), shared.clone());
            connections.spawn(async move { pass_on(wire, client, server, &shared).await });
        }
    });
    (port, accepting)
}

/// A message of a client.
struct Frame {
    kind: u8,
    bytes: Vec<u8>,
    body: usize,
}

impl Wire {
    async fn read(self, client: &mut BufReader<OwnedReadHalf>, is_first: bool) -> io::Result<Frame> {
        let (mut kind, mut bytes) = (0, Vec::new());
        if self == Self::Postgres && !is_first {
            kind = client.read_u8().await?;
            bytes.push(kind);
        }
        let header = client.read_u32().await?.to_be_bytes();
        bytes.extend(header);
        let (body, length) = match (self, header) {
            (Self::Postgres, length) => (bytes.len(), u32::from_be_bytes(length) as usize - header.len()),
            (Self::MySql, [a, b, c, _]) => (bytes.len(), u32::from_le_bytes([a, b, c, 0]) as usize),
        };
        bytes.resize(body + length, 0);
        client.read_exact(&mut bytes[body..]).await?;
        if self == Self::MySql {
            kind = if header[3] == 0 { bytes[body] } else { LOGIN };
        }
        Ok(Frame { kind, bytes, body })
    }

    /// Whether the server answers this message, with all before it.
    fn asks(self, frame: &Frame) -> bool {
        self == Self::MySql || matches!(frame.kind, b'S' | b'Q')
    }
}

/// The names of prepared statements.
#[derive(Default)]
struct Prepared {
    by_id: HashMap<Vec<u8>, Vec<String>>,
    /// Of the one that MySQL is asked to number.
    unnumbered: Option<Vec<String>>,
}

impl Prepared {
    /// Reads the number of the statement that the server was asked to prepare, if it was.
    fn number(&mut self, answer: &[u8]) {
        let names = self.unnumbered.take();
        if let Some(names) = names.filter(|_| answer[MYSQL_HEADER] == 0) {
            self.by_id.insert(answer[STATEMENT_ID].to_vec(), names);
        }
    }
}

impl Shared {
    /// Notes which statement a message executes. Returns what is to happen to it.
    fn look_at(&self, wire: Wire, frame: &Frame, prepared: &mut Prepared) -> Option<Armed> {
        let body = &frame.bytes[frame.body..];
        let names_in = |text: &[u8]| self.catalog.names(&String::from_utf8_lossy(text));
        let texts = body.splitn(3, |byte| *byte == 0).collect::<Vec<_>>();
        let names = match (wire, frame.kind, &texts[..]) {
            (Wire::Postgres, b'P', [statement, sql, ..]) => {
                prepared.by_id.insert(statement.to_vec(), names_in(sql));
                return None;
            }
            (Wire::Postgres, b'B', [_, statement, ..]) => {
                prepared.by_id.get(*statement).cloned().unwrap_or_default()
            }
            (Wire::Postgres, b'Q', [sql, ..]) => names_in(sql),
            (Wire::MySql, COM_STMT_PREPARE, _) => {
                prepared.unnumbered = Some(names_in(&body[1..]));
                return None;
            }
            (Wire::MySql, COM_STMT_EXECUTE, _) => {
                prepared.by_id.get(&body[1..5]).cloned().unwrap_or_default()
            }
            (Wire::MySql, COM_QUERY, _) => names_in(&body[1..]),
            _ => return None,
        };
        self.note(&names);
        self.take(&names, |_| true)
    }
}

/// Answers, which a connection that fails keeps from its client.
#[derive(Default)]
struct Answers {
    are_lost: AtomicBool,
    lost: Notify,
    prepared: Mutex<Prepared>,
}

impl Answers {
    async fn pass_on(&self, server: &mut OwnedReadHalf, client: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            // The server may end its session while the client hears nothing of it.
            let mut n = server.read(&mut bytes).await.unwrap_or(0);
            while n > 0 && n < STATEMENT_ID.end && self.prepared.lock().unwrap().unnumbered.is_some() {
                let more = server.read(&mut bytes[n..]).await?;
                n = if more == 0 { 0 } else { n + more };
            }
            if n > 0 {
                self.prepared.lock().unwrap().number(&bytes);
            }
            if self.are_lost.load(SeqCst) {
                self.lost.notify_one();
                if n == 0 {
                    return std::future::pending().await;
                }
            } else if n == 0 {
                return Ok(());
            } else {
                client.write_all(&bytes[..n]).await?;
            }
        }
    }
}

async fn pass_on(wire: Wire, client: TcpStream, server: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((client, mut to_client), (mut server, mut to_server)) = (client.into_split(), server.into_split());
    let mut client = BufReader::new(client);
    let answers = Answers::default();
    let questions = async {
        let (mut is_first, mut armed) = (true, None);
        loop {
            let frame = wire.read(&mut client, is_first).await?;
            is_first = false;
            if armed.is_none() {
                armed = shared.look_at(wire, &frame, &mut answers.prepared.lock().unwrap());
                answers.are_lost.store(armed.is_some(), SeqCst);
            }
            let Some(Armed { fault, .. }) = &armed else {
                to_server.write_all(&frame.bytes).await?;
                continue;
            };
            let fault = *fault;
            if fault.is_late() {
                to_server.write_all(&frame.bytes).await?;
                if !wire.asks(&frame) {
                    continue;
                }
            }
            let (at, (hang_up, hung_up)) = (Instant::now(), oneshot::channel());
            let _ = armed.take().map(|armed| armed.happened.send(Happened { at, hung_up }));
            if fault == Fault::CutUnanswered {
                answers.lost.notified().await;
            }
            if fault.is_cut() {
                return Ok(());
            }
            let mut ignored = [0; 1024];
            while client.read(&mut ignored).await.is_ok_and(|n| n > 0) {}
            let _ = hang_up.send(at.elapsed());
            if shared.silence == Silence::UntilItIsOver {
                return Ok(());
            }
            return std::future::pending().await;
        }
    };
    tokio::select! {
        ended = answers.pass_on(&mut server, &mut to_client) => ended,
        ended = questions => ended,
    }
}
