//! A proxy before Postgres that knows which statement passes, and lets its connection fail there.
use super::{
    postgres::{at_proxy, postgres_address},
    stores::World,
};
use sqlx::Postgres;
use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
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

/// A failure of a connection at a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing passes any more, in either direction, not even the end. The server has not got the statement.
    Silent,
    /// The same, behind the statement: the server has executed it.
    Unanswered,
    /// It is cut before the server gets the statement.
    Cut,
    /// It is cut when the server has executed it, before the answer.
    CutUnanswered,
}

impl Fault {
    fn is_cut(self) -> bool {
        matches!(self, Self::Cut | Self::CutUnanswered)
    }

    /// Whether the server gets the statement.
    fn is_late(self) -> bool {
        matches!(self, Self::Unanswered | Self::CutUnanswered)
    }
}

/// A fault that has happened.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) at: Instant,
    /// How long after it the client closed the connection.
    pub(crate) hung_up: oneshot::Receiver<Duration>,
}

struct Armed {
    statement: String,
    fault: Fault,
    happened: oneshot::Sender<Happened>,
}

/// The proxy of one program.
pub(crate) struct StatementFaults {
    /// Where the program connects to.
    pub(crate) url: String,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

struct Shared {
    catalog: Catalog,
    seen: Mutex<BTreeSet<String>>,
    armed: Mutex<Option<Armed>>,
    server_learns: bool,
}

impl StatementFaults {
    pub(crate) fn before(world: &World<Postgres>) -> Self {
        Self::on(&Handle::current(), world, false)
    }

    /// The same in another runtime. `server_learns`: the server hears of it when a client has closed a silent
    /// connection, and ends its session.
    pub(crate) fn on(runtime: &Handle, world: &World<Postgres>, server_learns: bool) -> Self {
        let _entered = runtime.enter();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let (server, address) = (postgres_address(world.url()), listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            catalog: Catalog::of(world),
            seen: Mutex::default(),
            armed: Mutex::default(),
            server_learns,
        });
        let (serving, mut accepting) = (shared.clone(), JoinSet::new());
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, shared) = (TcpStream::connect(server).await.unwrap(), serving.clone());
                connections.spawn(async move { pass_on(client, server, &shared).await });
            }
        });
        Self { url: at_proxy(world.url(), address), shared, _accepting: accepting }
    }

    /// The names of the statements that have passed so far.
    pub(crate) fn seen(&self) -> BTreeSet<String> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(crate) fn forget_seen(&self) {
        self.shared.seen.lock().unwrap().clear();
    }

    /// Lets the next execution of a statement fail. Only one statement waits for that.
    pub(crate) fn arm(&self, statement: &str, fault: Fault) -> oneshot::Receiver<Happened> {
        let (happened, happens) = oneshot::channel();
        let armed = Armed { statement: statement.to_owned(), fault, happened };
        *self.shared.armed.lock().unwrap() = Some(armed);
        happens
    }

    /// Ends the wait for the statement.
    pub(crate) fn disarm(&self) {
        *self.shared.armed.lock().unwrap() = None;
    }
}

/// The names of statements by their texts.
struct Catalog {
    whole: HashMap<String, Vec<String>>,
    /// Texts that end with a list, which is added to each, or have a place for a guard.
    beginnings: Vec<(String, String)>,
}

/// What begins and ends transactions, which is no text of a dialect.
const OTHERS: [&str; 6] = ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET"];

impl Catalog {
    fn of(world: &World<Postgres>) -> Self {
        let (mut whole, mut beginnings) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        for (name, statement) in world.engine().sql().named() {
            let sql = statement.as_str();
            let beginning = sql.split_once("GUARD").map(|(beginning, _)| beginning);
            let is_open = ["IN", "VALUES"].iter().any(|end| sql.ends_with(end));
            match beginning.or(is_open.then_some(sql)) {
                Some(beginning) => beginnings.push((beginning.to_owned(), name)),
                None => whole.entry(sql.to_owned()).or_default().push(name),
            }
        }
        Self { whole, beginnings }
    }

    /// The names of a statement of Twinbox, none for one of an application.
    fn names(&self, sql: &str) -> Vec<String> {
        if let Some(names) = self.whole.get(sql) {
            return names.clone();
        }
        if let Some((_, name)) = self.beginnings.iter().find(|(beginning, _)| sql.starts_with(beginning)) {
            return vec![name.clone()];
        }
        let first = sql.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        OTHERS.iter().filter(|other| **other == first).map(|other| (*other).to_owned()).collect()
    }
}

/// A message of a client.
struct Frame {
    kind: u8,
    bytes: Vec<u8>,
    body: usize,
}

impl Frame {
    async fn read(client: &mut BufReader<OwnedReadHalf>, is_first: bool) -> io::Result<Self> {
        let (kind, mut bytes) =
            if is_first { (0, Vec::new()) } else { (client.read_u8().await?, Vec::new()) };
        if !is_first {
            bytes.push(kind);
        }
        let length = client.read_u32().await?;
        bytes.extend(length.to_be_bytes());
        let body = bytes.len();
        bytes.resize(body + length as usize - size_of::<u32>(), 0);
        client.read_exact(&mut bytes[body..]).await?;
        Ok(Self { kind, bytes, body })
    }

    /// The text up to the next zero, and the rest.
    fn texts(&self) -> Vec<&[u8]> {
        self.bytes[self.body..].splitn(3, |byte| *byte == 0).collect()
    }
}

/// Answers, which a connection that fails keeps from its client.
struct Answers {
    are_lost: AtomicBool,
    lost: Notify,
}

impl Answers {
    async fn pass_on(&self, server: &mut OwnedReadHalf, client: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let n = server.read(&mut bytes).await?;
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

async fn pass_on(client: TcpStream, server: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((client, mut to_client), (mut server, mut to_server)) = (client.into_split(), server.into_split());
    let mut client = BufReader::new(client);
    let answers = Answers { are_lost: AtomicBool::new(false), lost: Notify::new() };
    let questions = async {
        let (mut is_first, mut prepared) = (true, HashMap::new());
        let mut armed = None;
        loop {
            let frame = Frame::read(&mut client, is_first).await?;
            is_first = false;
            if armed.is_none() {
                armed = shared.look_at(&frame, &mut prepared);
                answers.are_lost.store(armed.is_some(), SeqCst);
            }
            let Some(Armed { fault, .. }) = &armed else {
                to_server.write_all(&frame.bytes).await?;
                continue;
            };
            let fault = *fault;
            if fault.is_late() {
                to_server.write_all(&frame.bytes).await?;
                if !matches!(frame.kind, b'S' | b'Q') {
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
            if shared.server_learns {
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

impl Shared {
    /// Notes which statement a message executes. Returns what is to happen to it.
    fn look_at(&self, frame: &Frame, prepared: &mut HashMap<Vec<u8>, Vec<String>>) -> Option<Armed> {
        let texts = frame.texts();
        let names = match (frame.kind, &texts[..]) {
            (b'P', [statement, sql, ..]) => {
                prepared.insert(statement.to_vec(), self.catalog.names(&String::from_utf8_lossy(sql)));
                return None;
            }
            (b'B', [_, statement, ..]) => prepared.get(*statement).cloned().unwrap_or_default(),
            (b'Q', [sql, ..]) => self.catalog.names(&String::from_utf8_lossy(sql)),
            _ => return None,
        };
        self.seen.lock().unwrap().extend(names.iter().cloned());
        self.armed.lock().unwrap().take_if(|armed| names.contains(&armed.statement))
    }
}
