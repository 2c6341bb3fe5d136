//! Calls of an application, an operator or a keeper. A call ends, whichever of its statements is not
//! answered, and works again then.
mod application;
mod operators;
mod seldom;

use super::{Report, is_chosen, programs, programs::Program};
use crate::support::{
    database::SERVICE,
    statement_faults::{Fault, Faulty, Happened, Silence, StatementFaults},
    stores::{TestDb, World},
    wait::{Pause, pause},
};
use futures::future::LocalBoxFuture;
use std::time::Duration;
use tokio::{
    runtime::{Builder, Handle},
    time::timeout,
};
use twinbox::{CancellationToken, Dialect, Error, ErrorKind, Store};

/// How long an application waits in a transaction of its own, in which nothing else bounds its statements:
/// longer than all that is bounded.
const APPLICATION_WAITS: Duration = Duration::from_secs(3600);
/// The statements in transactions of the application.
const OF_CALLERS: [&str; 9] = [
    "outbox.lock_key",
    "outbox.publish",
    "outbox.publish_all",
    "delayed.insert",
    "delayed.cancel",
    "effects.plan",
    "effects.find",
    "effects.compensation",
    "effects.lock",
];
/// How often programs are fed, so that there is something to look at and to change.
const FEEDS: i64 = 10;

type Calling<DB> = for<'a> fn(&'a Store<DB>, &'a World<DB>) -> LocalBoxFuture<'a, Result<(), Error>>;

/// A call through connections that fail. What has to be there for it comes over others, of the world.
pub(super) struct Call<DB: Dialect> {
    name: &'static str,
    call: Calling<DB>,
}

macro_rules! calls {
    ($($name:literal: |$store:ident, $world:ident| $call:block)*) => {
        pub(super) fn all<DB: $crate::support::stores::TestDb>() -> Vec<$crate::answers::calls::Call<DB>> {
            vec![$($crate::answers::calls::Call {
                name: $name,
                call: |$store, $world| Box::pin(async move { $call }),
            },)*]
        }
    };
}
use calls;

/// A refusal because of the state of the log or of a thing is an answer too.
fn answered<T>(done: Result<T, Error>) -> Result<(), Error> {
    match done {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Configuration | ErrorKind::Conflict | ErrorKind::NotFound
            ) =>
        {
            Ok(())
        }
        done => done.map(drop),
    }
}

/// Lets programs work for a while, and stops them.
async fn populate<DB: TestDb, P: Program<DB>>(world: &World<DB>) {
    let (program, stop) = (P::new(world).await, CancellationToken::new());
    let running = tokio::spawn(program.run(world.owner().clone(), stop.clone()));
    for n in 0..FEEDS {
        program.feed(world, n).await;
        while !program.is_done(world, n).await {
            pause(Pause::Look, Duration::from_millis(20)).await;
        }
    }
    stop.cancel();
    running.await.unwrap();
}

struct Caller<DB: Dialect> {
    world: World<DB>,
    /// Where proxies run.
    outside: Handle,
    faults: StatementFaults<DB>,
    report: Report,
}

impl<DB: Faulty> Caller<DB> {
    fn new(world: World<DB>, outside: Handle) -> Self {
        let faults = DB::faults(&outside, &world, Silence::UntilItIsOver);
        Self { world, outside, faults, report: Report::default() }
    }

    fn store(&self) -> Store<DB> {
        Store::new(self.faults.pool(4), SERVICE).unwrap()
    }

    /// Lets a statement of a call fail.
    async fn fail(&mut self, call: &Call<DB>, statement: &str, fault: Fault) {
        // Connections that an earlier call has left behind do not meet the fault.
        self.faults = DB::faults(&self.outside, &self.world, Silence::UntilItIsOver);
        let store = self.store();
        let happens = self.faults.arm(statement, fault);
        let calling = async {
            let called = timeout(APPLICATION_WAITS, (call.call)(&store, &self.world)).await;
            self.faults.disarm();
            called
        };
        // From the fault on, time passes as soon as nothing else is to be done.
        let failing = async {
            let Ok(Happened { hung_up, .. }) = happens.await else { return false };
            tokio::time::pause();
            let _ = hung_up.await;
            tokio::time::resume();
            true
        };
        let (called, has_failed) = tokio::join!(calling, failing);
        if !has_failed {
            return;
        }
        self.report.happened(statement);
        let Ok(called) = called else {
            if !OF_CALLERS.contains(&statement) {
                self.report.problems.push(format!("{}: {statement}, {fault:?}: it does not end", call.name));
            }
            return;
        };
        if let Err(error) = called
            && !error.is_transient()
        {
            self.report.problems.push(format!("{}: {statement}, {fault:?}: {error}", call.name));
        }
        let again = (call.call)(&store, &self.world).await;
        if let Err(error) = again {
            self.report.problems.push(format!("{}: again after {statement}, {fault:?}: {error}", call.name));
        }
        store.pool().close().await;
    }

    async fn outlast(&mut self, call: &Call<DB>) {
        self.faults = DB::faults(&self.outside, &self.world, Silence::UntilItIsOver);
        let store = self.store();
        if let Err(error) = (call.call)(&store, &self.world).await {
            self.report.problems.push(format!("{}: {error}", call.name));
        }
        store.pool().close().await;
        let statements = self.faults.seen();
        for statement in statements.iter().filter(|statement| is_chosen(statement)) {
            for fault in DB::FAULTS.iter().filter(|fault| **fault != Fault::Cut) {
                self.fail(call, statement, *fault).await;
            }
        }
        self.report.statements.extend(statements);
    }
}

/// Makes each call, and lets each of its statements fail. Has a clock of its own.
pub(super) fn outlast_all<DB: Faulty>() -> Report {
    let outside = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let inside = Builder::new_current_thread().enable_all().build().unwrap();
    inside.block_on(async {
        let world = World::<DB>::new().await;
        populate::<DB, programs::RelayProgram>(&world).await;
        populate::<DB, programs::LogConsumer>(&world).await;
        populate::<DB, programs::EffectDispatcher>(&world).await;
        populate::<DB, programs::Jobs>(&world).await;
        let mut caller = Caller::new(world, outside.handle().clone());
        // The keeper of the log is among the last: it detaches who lags.
        for call in seldom::all().into_iter().chain(operators::all()).chain(application::all()) {
            caller.outlast(&call).await;
        }
        caller.report
    })
}
