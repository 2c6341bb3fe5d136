//! No wait is without an end: each program outlasts a connection that fails at any of its statements.
mod calls;
mod idle;
mod on_sqlite;
mod programs;
mod untried;

use crate::support::{
    database::SERVICE,
    long,
    statement_faults::{Fault, Faulty, Happened, Silence, StatementFaults},
    stores::World,
    wait::{Pause, pause},
};
use futures::{FutureExt as _, StreamExt as _, future::LocalBoxFuture, stream::FuturesUnordered};
use programs::Program;
use sqlx::{MySql, Postgres, Sqlite};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Handle, Runtime},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};
use twinbox::{CancellationToken, Dialect, Store};
use twinbox_core::task_name::TaskName;
use untried::{ELSEWHERE, UNTRIED};

/// The next of another key is served within this time: 40 s, and more on a machine that is busy.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// A program gives a statement up within this time, and closes its connection: 30 s, and 5 s for a rollback,
/// and more on a machine that is busy.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(60);
/// Statements that have more time, because nothing waits for them.
const MAY_TAKE_LONGER: [&str; 1] = ["log.thin_ticks"];
/// A program ends within this time after it was asked to.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// How long a program runs to show which statements it has, and how often it is fed meanwhile at least.
const REHEARSAL: (Duration, i64) = (Duration::from_secs(12), 16);
const BETWEEN_FEEDS: Duration = Duration::from_millis(500);

/// The variable that names the one statement which fails, to look at what happens.
const ONLY: &str = "TWINBOX_TEST_STATEMENT";
/// The variable that names the one [`Fault`] of a long run.
const ONLY_FAULT: &str = "TWINBOX_TEST_FAULT";

fn is_chosen(statement: &str) -> bool {
    std::env::var(ONLY).map_or(true, |only| only == statement)
}

/// A program that runs.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start<DB: Faulty, P: Program<DB>>(program: &P, faults: &StatementFaults<DB>) -> Self {
        let stop = CancellationToken::new();
        let running = program.run(Store::new(faults.pool(30), SERVICE).unwrap(), stop.clone());
        Self { stop, task: tokio::spawn(running) }
    }

    /// Returns whether the program ended within its time.
    async fn end(self) -> bool {
        self.stop.cancel();
        let aborting = self.task.abort_handle();
        let ended = timeout(ENDS_WITHIN, self.task).await;
        aborting.abort();
        ended.is_ok_and(|ended| ended.is_ok())
    }
}

/// The outcome of the faults of one program, or of all.
#[derive(Default)]
struct Report {
    statements: BTreeSet<String>,
    /// The statements of these at which a fault has happened.
    failed: BTreeSet<String>,
    /// How many faults have happened.
    faults: usize,
    /// How long the next of another key took at most after a fault, and after which, by program.
    served_after: BTreeMap<&'static str, (Duration, String)>,
    problems: Vec<String>,
}

impl Report {
    fn happened(&mut self, statement: &str) {
        self.failed.insert(statement.to_owned());
        self.faults += 1;
    }

    fn show(&self) {
        println!("{} statements, {} faults: {:?}", self.failed.len(), self.faults, self.failed);
        println!("served at the latest: {:#?}", self.served_after);
    }

    fn add(&mut self, other: Self) {
        self.statements.extend(other.statements);
        self.failed.extend(other.failed);
        self.faults += other.faults;
        for (program, after) in other.served_after {
            let latest = self.served_after.entry(program).or_default();
            *latest = after.max(std::mem::take(latest));
        }
        self.problems.extend(other.problems);
    }
}

/// A program that is fed, and whose connections fail.
struct Trial<DB: Dialect, P> {
    program: P,
    world: World<DB>,
    faults: StatementFaults<DB>,
    running: Option<Running>,
    fed: i64,
    /// The connections that fell silent, by statement.
    silent: Vec<(String, oneshot::Receiver<Duration>)>,
    report: Report,
}

impl<DB: Faulty, P: Program<DB>> Trial<DB, P> {
    /// Prepares a program that has never run.
    async fn new() -> Self {
        let world = World::<DB>::new().await;
        let program = P::new(&world).await;
        let faults = DB::faults(&Handle::current(), &world, Silence::AsItIs);
        Self { program, world, faults, running: None, fed: 0, silent: Vec::new(), report: Report::default() }
    }

    async fn start(&mut self) {
        self.running = Some(Running::start(&self.program, &self.faults));
    }

    fn problem(&mut self, statement: &str, what: &str) {
        println!("{}: {statement}: {what}", P::NAME);
        self.report.problems.push(format!("{}: {statement}: {what}", P::NAME));
    }

    async fn feed(&mut self) -> i64 {
        let n = self.fed;
        self.fed += 1;
        self.program.feed(&self.world, n).await;
        n
    }

    async fn restart(&mut self, statement: &str) {
        if !self.running.take().unwrap().end().await {
            self.problem(statement, "the program does not end");
        }
        self.start().await;
    }

    /// Waits between two feeds. Some need what came of an earlier one.
    async fn pace(&self, fed: i64) {
        pause(Pause::Pace, BETWEEN_FEEDS).await;
        if fed % 4 == 3 {
            self.is_done(fed, SERVED_WITHIN).await;
        }
    }

    /// Feeds the program until it has run its statements once.
    async fn rehearse(&mut self) {
        for restarts in [true, false] {
            let (began, enough) = (Instant::now(), self.fed + REHEARSAL.1);
            while began.elapsed() < REHEARSAL.0 || self.fed < enough {
                let fed = self.feed().await;
                self.pace(fed).await;
            }
            if restarts {
                self.restart("none").await;
            }
        }
        self.report.statements = self.faults.seen();
    }

    /// Feeds the program until the fault has happened. A statement of its beginning or end needs another run.
    async fn happens(&mut self, statement: &str, fault: Fault) -> Option<Happened> {
        let mut happens = self.faults.arm(statement, fault);
        if self.running.is_none() {
            self.start().await;
        }
        for restarts in [true, false, false] {
            let (began, enough) = (Instant::now(), self.fed + REHEARSAL.1);
            while began.elapsed() < REHEARSAL.0 || self.fed < enough {
                let fed = self.feed().await;
                tokio::select! {
                    happened = &mut happens => return Some(happened.unwrap()),
                    () = self.pace(fed) => {}
                }
            }
            if restarts {
                self.restart(statement).await;
            }
        }
        self.faults.disarm();
        None
    }

    /// Waits until the program has done what it was fed with.
    async fn is_done(&self, n: i64, within: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < within {
            if self.program.is_done(&self.world, n).await {
                return true;
            }
            pause(Pause::Look, BETWEEN_FEEDS / 4).await;
        }
        false
    }

    /// Lets a statement fail. Returns whether it was executed.
    async fn outlast(&mut self, statement: &str, fault: Fault) -> bool {
        let Some(Happened { at, hung_up }) = self.happens(statement, fault).await else { return false };
        self.report.happened(statement);
        let next = self.feed().await;
        if !self.is_done(next, SERVED_WITHIN).await {
            self.problem(statement, "the next was not served");
            if !self.is_done(next, 3 * SERVED_WITHIN).await {
                self.problem(statement, "it is never served");
                self.restart(statement).await;
            }
        }
        let latest = self.report.served_after.entry(P::NAME).or_default();
        *latest = std::mem::take(latest).max((at.elapsed(), statement.to_owned()));
        let is_silent = matches!(fault, Fault::Silent | Fault::Unanswered) && !DB::ANSWERS_AGAIN;
        if is_silent && !MAY_TAKE_LONGER.contains(&statement) {
            self.silent.push((statement.to_owned(), hung_up));
        }
        true
    }

    async fn end(mut self) -> Report {
        for n in 0..self.fed {
            if !self.is_done(n, 3 * SERVED_WITHIN).await {
                self.problem("end", &format!("{n} is not done"));
                break;
            }
        }
        for (statement, hung_up) in std::mem::take(&mut self.silent) {
            match timeout(GIVEN_UP_WITHIN, hung_up).await {
                Ok(Ok(after)) if after < GIVEN_UP_WITHIN => {}
                other => self.problem(&statement, &format!("its connection stays: {other:?}")),
            }
        }
        if !self.running.take().unwrap().end().await {
            self.problem("end", "the program does not end");
        }
        self.report
    }
}

/// Lets each statement of a program fail once. Of `parts` processes, which share them, this is the one with
/// number `part`.
async fn outlast<DB: Faulty, P: Program<DB>>(fault: Fault, part: u64, parts: u64) -> Report {
    let mut trial = Trial::<DB, P>::new().await;
    trial.start().await;
    trial.rehearse().await;
    let mut others = Vec::new();
    for statement in trial.report.statements.clone() {
        let mut hasher = DefaultHasher::new();
        statement.hash(&mut hasher);
        if is_chosen(&statement) && hasher.finish() % parts == part && !trial.outlast(&statement, fault).await
        {
            others.push(statement);
        }
    }
    let mut report = trial.end().await;
    // Some are executed in a database that is new, and some are rare.
    for statement in others {
        let mut trial = Trial::<DB, P>::new().await;
        trial.outlast(&statement, fault).await;
        report.add(trial.end().await);
    }
    report
}

/// A fault in each program: all programs at the same time, because they mostly wait.
async fn outlast_all<DB: Faulty>(fault: Fault) -> Report {
    let mut trials = FuturesUnordered::<LocalBoxFuture<'_, Report>>::new();
    for part in 0..DB::PARTS {
        trials.push(outlast::<DB, programs::LogConsumer>(fault, part, DB::PARTS).boxed_local());
        trials.push(outlast::<DB, programs::NatsConsumer>(fault, part, DB::PARTS).boxed_local());
        trials.push(outlast::<DB, programs::RelayProgram>(fault, part, DB::PARTS).boxed_local());
        trials.push(outlast::<DB, programs::Jobs>(fault, part, DB::PARTS).boxed_local());
    }
    trials.push(outlast::<DB, programs::Mover>(fault, 0, 1).boxed_local());
    trials.push(outlast::<DB, programs::EffectDispatcher>(fault, 0, 1).boxed_local());
    trials.push(outlast::<DB, programs::Web>(fault, 0, 1).boxed_local());
    trials.push(outlast::<DB, programs::Console>(fault, 0, 1).boxed_local());
    let mut all = Report::default();
    while let Some(report) = trials.next().await {
        all.add(report);
    }
    all
}

/// How many statements of programs, and tasks, the usual run may miss: some are rare.
const RARE: usize = 4;

/// All names of statements, and whether the dialect has the statement.
async fn statements<DB: Faulty>() -> BTreeMap<String, bool> {
    let world = World::<DB>::new().await;
    let named = world.engine().sql().named().into_iter();
    named.map(|(name, statement)| (name, !statement.is_absent())).collect()
}

fn of_programs() -> BTreeSet<String> {
    let areas = programs::OF_PROGRAMS.iter();
    areas.flat_map(|(area, names)| names.iter().map(move |name| format!("{area}.{name}"))).collect()
}

/// Each statement of the dialect fails. The programs at the same time as the calls, because each kind waits
/// for the other database.
fn outlast_each_statement<DB: Faulty>(faults: &[Fault]) {
    let before = Vec::from_iter(TaskName::ALL.iter().map(|task| task.started()));
    let calls = std::thread::spawn(calls::outlast_all::<DB>);
    let runtime = Runtime::new().unwrap();
    let mut report = Report::default();
    let is_chosen =
        |fault: &&Fault| std::env::var(ONLY_FAULT).map_or(true, |only| only == format!("{fault:?}"));
    for fault in faults.iter().filter(is_chosen) {
        report.add(runtime.block_on(outlast_all::<DB>(*fault)));
    }
    report.show();
    let calls = calls.join().unwrap();
    calls.show();
    report.add(calls);
    let has_started = |task: &TaskName| task.started() > before[*task as usize];
    let is_expected = |task: &TaskName| !ELSEWHERE.contains(task) && !DB::WITHOUT.contains(task);
    let not_started = TaskName::ALL.iter().filter(|task| !has_started(task) && is_expected(task));
    let statements = runtime.block_on(statements::<DB>());
    let known = UNTRIED.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>();
    let of_programs = of_programs();
    let unknown = known.union(&of_programs).filter(|name| !statements.contains_key(*name)).cloned();
    report.problems.extend(unknown.map(|name| format!("{name}: no statement has this name")));
    let of_dialect = statements.into_iter().filter_map(|(name, is_there)| is_there.then_some(name));
    let missed = of_dialect.filter(|name| !report.failed.contains(name) && !known.contains(name));
    let (rare, untried) = missed.partition::<Vec<_>, _>(|name| of_programs.contains(name));
    let not_started = Vec::from_iter(not_started);
    println!(
        "{}: {} tasks, {} statements, {} faults; missed: {rare:?} {untried:?} {not_started:?}",
        DB::MODULE,
        TaskName::ALL.iter().filter(|task| has_started(task)).count(),
        report.failed.len(),
        report.faults,
    );
    if std::env::var_os(ONLY).is_none() {
        report.problems.extend(untried.iter().map(|name| format!("{name}: no fault meets it")));
        if rare.len() + not_started.len() > long::or(0, RARE) {
            report.problems.push(format!("{rare:?}, {not_started:?}: no program comes to them"));
        }
    }
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

/// One fault in the usual run, and all in the long one.
fn a_statement_that_is_not_answered_holds_up_nothing_else<DB: Faulty>() {
    outlast_each_statement::<DB>(long::or(DB::FAULTS, &DB::FAULTS[..1]));
}

#[test]
fn a_statement_that_is_not_answered_holds_up_nothing_else_on_postgres() {
    a_statement_that_is_not_answered_holds_up_nothing_else::<Postgres>();
}

#[test]
fn a_statement_that_is_not_answered_holds_up_nothing_else_on_sqlite() {
    a_statement_that_is_not_answered_holds_up_nothing_else::<Sqlite>();
}

/// One program alone in the usual run: all of them take as long as on Postgres.
#[test]
fn a_statement_that_is_not_answered_holds_up_nothing_else_on_mysql() {
    if long::or(true, false) {
        return a_statement_that_is_not_answered_holds_up_nothing_else::<MySql>();
    }
    let report = Runtime::new().unwrap().block_on(outlast::<MySql, programs::Mover>(Fault::Silent, 0, 1));
    report.show();
    assert!(report.failed.contains("delayed.move_due") || std::env::var_os(ONLY).is_some());
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}
