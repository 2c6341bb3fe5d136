//! A stream, and relays that are processes.
use super::{
    database::TestDatabase,
    processes::{Program, Programs},
    relay::{Target, free_leases},
    stores::TestDb,
    wait::PATIENCE,
};
use sqlx::Postgres;
use std::os::unix::process::ExitStatusExt as _;
use tokio::{
    process::{Child, Command},
    time::timeout,
};
use twinbox::Dialect;

/// The lease of the relays of a [`Rig`], in their environment.
pub(crate) const RIG_LEASE: &str = "TWINBOX_RELAY__DESTINATIONS__KILL__LEASE";
/// The same for the time-out of a publish.
pub(crate) const RIG_PUBLISH_TIMEOUT: &str = "TWINBOX_RELAY__DESTINATIONS__KILL__PUBLISH_TIMEOUT";

/// A database, a stream with a short duplicate window, and relays that are processes.
pub(crate) struct Rig<DB: Dialect = Postgres> {
    pub(crate) database: TestDatabase<DB>,
    pub(crate) programs: Programs,
    pub(crate) target: Target,
}

impl Rig<Postgres> {
    pub(crate) async fn new(types: &[&str]) -> Self {
        Self::at(&Target::shared().url, types).await
    }

    pub(crate) async fn at(nats_url: &str, types: &[&str]) -> Self {
        Self::on(nats_url, types).await
    }
}

impl<DB: TestDb> Rig<DB> {
    pub(crate) async fn on(nats_url: &str, types: &[&str]) -> Self {
        let database = DB::fresh().await;
        let mut programs = Programs::at(database.url().to_owned());
        (programs.create_stream, programs.nats_url) = (false, nats_url.to_owned());
        let target = Target { name: programs.stream.clone(), url: nats_url.to_owned() };
        target.create(target.forgetful(types)).await;
        Self { database, programs, target }
    }

    /// Returns the command of a relay whose lease and time-out outlast what a busy machine adds. Nobody waits
    /// for the lease of one that died: see [`free_leases`].
    pub(crate) fn command(&self) -> Command {
        let mut command = self.programs.command(Program::Relay);
        command.env(RIG_LEASE, "12s").env(RIG_PUBLISH_TIMEOUT, "6s");
        command
    }

    pub(crate) fn start(&self) -> Child {
        self.command().spawn().expect("a program just built starts")
    }

    pub(crate) fn freeze(&self, at: &str) -> Child {
        self.command().env("TWINBOX_FREEZE_AT", at).spawn().expect("a program just built starts")
    }

    pub(crate) fn doomed(&self, at: &str) -> Child {
        self.command().env("TWINBOX_CRASH_AT", at).spawn().expect("a program just built starts")
    }

    /// Runs a relay until it dies at the crash point `at`.
    pub(crate) async fn dies(&self, at: &str) {
        let ended = timeout(PATIENCE, self.doomed(at).wait()).await.expect("it dies").unwrap();
        assert_eq!(ended.signal(), Some(9), "killed, not ended, at {at}");
        free_leases(&self.database).await;
    }

    /// Kills a relay. The next one may start at once.
    pub(crate) async fn kill(&self, relay: &mut Child) {
        relay.kill().await.unwrap();
        free_leases(&self.database).await;
    }
}
