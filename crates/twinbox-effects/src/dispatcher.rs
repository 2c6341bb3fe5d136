//! Sends side effects to their vendors.
mod call;
mod cycle;
mod decision;
mod lane;
mod options;
mod rows;

use crate::{
    dispatcher::{
        call::{Call, Called},
        cycle::{Claim, Cycle, CycleError},
        lane::Lane,
        rows::Note,
    },
    metrics,
    vendor::{Recovery, Vendor},
};
use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use std::{collections::BTreeSet, fmt, time::Duration};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use twinbox_core::{backoff::Backoff, limits::bounded, task_name::TaskName};
use twinbox_sql::{Dialect, Error, ErrorKind, Store, engine::Engine, outage::outlast};
use uuid::Uuid;

pub(crate) use decision::Settled;
pub use options::VendorOptions;

/// The shortest pause between two looks for due effects after commits of this process.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// How long a stopped dispatcher tries to write results, after the last send has ended.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Sends the side effects of a service to their vendors.
///
/// Any number of dispatchers may run on one database: in the process that plans the effects, in a consumer's,
/// or alone. An effect is sent by one of them at a time.
///
/// # Delivery guarantees
/// A dispatcher commits that an effect is sent before it sends it. So after a crash, a time-out or a lost
/// connection it knows that the vendor may have acted, and follows the [`Recovery`] of the vendor: it sends
/// the same key again, asks the vendor, or leaves the effect to a person. Clocks of the dispatchers do not
/// matter: the database's decides.
pub struct Dispatcher<DB: Dialect> {
    store: Store<DB>,
    lanes: Vec<Lane>,
    poll: Duration,
}

impl<DB: Dialect> Dispatcher<DB> {
    /// Creates a dispatcher without vendors.
    pub fn new(store: &Store<DB>) -> Self {
        Self { store: store.clone(), lanes: Vec::new(), poll: Duration::from_millis(200) }
    }

    /// Adds a vendor with the default options.
    #[must_use]
    pub fn vendor(self, vendor: impl Vendor) -> Self {
        self.vendor_with(vendor, VendorOptions::new())
    }

    /// Adds a vendor.
    #[must_use]
    pub fn vendor_with(mut self, vendor: impl Vendor, options: VendorOptions) -> Self {
        self.lanes.push(Lane::new(vendor, options));
        self
    }

    /// Sets how often to look for effects that another process has planned, and for those whose time has
    /// come: 200 ms by default. Commits of this process are seen at once.
    #[must_use]
    pub fn poll(self, poll: Duration) -> Self {
        Self { poll: bounded(poll.max(LOOK_PAUSE)), ..self }
    }

    /// Sends effects until `stop` is cancelled. Then it begins no further send, and returns when those under
    /// way have ended and are noted, which takes at most the time-out of a send and 10 s.
    ///
    /// While the database is away, also when it starts, it waits and sends nothing. A statement without an
    /// answer is given up after 10 s, and another connection is used. Dropped half-way, or killed, it leaves
    /// effects that are `fired`: the next dispatcher recovers them.
    ///
    /// # Errors
    /// The tables do not fit this program, two vendors have one name, or a vendor's profile needs a look-up
    /// that it does not have.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        self.check()?;
        metrics::describe();
        if outlast(&self.store, &stop, || self.store.check()).await?.is_none() {
            return Ok(());
        }
        let committed = self.store.engine().committed();
        let running = Running {
            engine: self.store.engine().clone(),
            owner: Uuid::now_v7(),
            names: self.lanes.iter().map(|lane| lane.name().to_owned()).collect(),
            lanes: self.lanes,
            poll: self.poll,
            notes: Vec::new(),
            closing: Vec::new(),
            calls: JoinSet::new(),
            cycle: None,
            retry_at: Instant::now(),
            look_at: Instant::now(),
            backoff: Backoff::new(),
        };
        running.run(stop, committed).await;
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        for lane in &self.lanes {
            let refuse = |what: &str| {
                Err(Error::new(ErrorKind::Configuration, format!("the vendor {:?} {what}", lane.name())))
            };
            if !names.insert(lane.name()) {
                return refuse("is there twice");
            }
            if matches!(lane.rules.recovery, Recovery::LookUp { .. }) && !lane.rules.can_look_up {
                return refuse(
                    "has a profile that looks effects up, and no look-up: give it one, or another recovery",
                );
            }
        }
        Ok(())
    }
}

impl<DB: Dialect> fmt::Debug for Dispatcher<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendors: Vec<_> = self.lanes.iter().map(Lane::name).collect();
        f.debug_struct("Dispatcher").field("vendors", &vendors).finish_non_exhaustive()
    }
}

/// A dispatcher that runs.
struct Running<DB: Dialect> {
    engine: Engine<DB>,
    /// The owner of the effects that this process sends.
    owner: Uuid,
    /// The names of the vendors, as JSON binds them.
    names: Vec<String>,
    lanes: Vec<Lane>,
    poll: Duration,
    /// Results that are not yet written.
    notes: Vec<Note>,
    /// Vendors that the running transaction closes, and for how long.
    closing: Vec<(String, Duration)>,
    calls: JoinSet<Called>,
    cycle: Option<BoxFuture<'static, Result<Vec<Claim>, CycleError>>>,
    /// No transaction before this time, because the last one failed.
    retry_at: Instant,
    look_at: Instant,
    backoff: Backoff,
}

impl<DB: Dialect> Running<DB> {
    async fn run(mut self, stop: CancellationToken, mut committed: watch::Receiver<()>) {
        let (mut stopped, mut drained_by) = (false, None);
        loop {
            if stop.is_cancelled() && !stopped {
                stopped = true;
                let longest = self.lanes.iter().map(|lane| lane.options.timeout).max().unwrap_or_default();
                drained_by = Some(Instant::now() + longest + DRAIN_MAX);
                self.notes.extend(self.lanes.iter_mut().flat_map(Lane::abandon));
            }
            if stopped && self.calls.is_empty() && self.cycle.is_none() && self.notes.is_empty() {
                return;
            }
            if drained_by.is_some_and(|by| Instant::now() >= by) {
                let left = self.notes.len();
                tracing::error!(
                    left,
                    "the results of effects could not be written: another dispatcher recovers them"
                );
                return;
            }
            if !stopped {
                self.start_calls();
            }
            self.start_cycle(stopped);
            let is_idle = self.cycle.is_none();
            let has_work = is_idle && !self.notes.is_empty();
            let cycle = OptionFuture::from(self.cycle.as_mut());
            tokio::select! {
                Some(called) = self.calls.join_next() => self.note(called),
                Some(result) = cycle => self.cycled(result, stopped),
                () = sleep_until(self.look_at), if is_idle && !stopped => self.look().await,
                () = sleep_until(self.retry_at), if has_work => {}
                Ok(()) = committed.changed(), if !stopped => {
                    self.look_at = self.look_at.min(Instant::now() + LOOK_PAUSE);
                }
                () = stop.cancelled(), if !stopped => {}
                () = sleep_until(drained_by.unwrap_or(self.look_at)), if stopped => {}
            }
        }
    }

    /// Sends what is noted as sent, as far as there are free slots.
    fn start_calls(&mut self) {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            while let Some(taken) = lane.next(&mut self.notes) {
                let (vendor, timeout) = (lane.vendor.clone(), lane.options.timeout);
                self.calls.spawn(TaskName::EffectCall.of(Call { lane: at, taken, vendor, timeout }.make()));
            }
        }
    }

    /// Takes up all results that are there.
    fn note(&mut self, called: Result<Called, JoinError>) {
        let mut next = Some(called);
        while let Some(called) = next {
            // A call catches its panics, and nothing aborts it.
            if let Ok(called) = called {
                self.notes.push(self.lanes[called.lane].finished(called));
            }
            next = self.calls.try_join_next();
        }
    }

    /// Begins a transaction that writes results and claims effects, if there is something to do.
    fn start_cycle(&mut self, stopped: bool) {
        if self.cycle.is_some() || Instant::now() < self.retry_at {
            return;
        }
        let lanes = self.lanes.iter_mut().enumerate().filter(|_| !stopped);
        let wants: Vec<_> = lanes.filter_map(|(at, lane)| lane.want(at)).collect();
        if self.notes.is_empty() && wants.is_empty() {
            return;
        }
        let notes = std::mem::take(&mut self.notes);
        self.closing = notes.iter().filter_map(|note| note.closes.clone()).collect();
        let cycle = Cycle { engine: self.engine.clone(), owner: self.owner, notes, wants };
        self.cycle = Some(cycle.run().boxed());
    }

    fn cycled(&mut self, result: Result<Vec<Claim>, CycleError>, stopped: bool) {
        self.cycle = None;
        match result {
            Ok(claims) => {
                self.backoff.reset();
                for (vendor, wait) in self.closing.drain(..) {
                    if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.name() == vendor) {
                        lane.closed(wait);
                    }
                }
                for claim in claims {
                    let lane = &mut self.lanes[claim.lane];
                    lane.claimed(claim);
                    if stopped {
                        self.notes.extend(lane.abandon());
                    }
                }
            }
            Err(CycleError { error, notes }) => {
                self.notes.extend(notes);
                self.failed(&error);
            }
        }
    }

    /// Asks the database which vendors have due effects, and which are closed.
    async fn look(&mut self) {
        self.look_at = Instant::now() + self.poll;
        match rows::look(&self.engine, &self.names).await {
            Ok(looks) => {
                for look in looks {
                    let lane = self.lanes.iter_mut().find(|lane| lane.name() == look.vendor);
                    let Some(lane) = lane else { continue };
                    lane.looked(&look);
                    if look.is_paused {
                        self.notes.extend(lane.abandon());
                    }
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Waits before the next transaction. Claims of a failed one are forgotten.
    fn failed(&mut self, error: &Error) {
        let pause = self.backoff.pause();
        let cause = error as &dyn std::error::Error;
        tracing::warn!(error = cause, ?pause, "the database of the effects failed");
        self.retry_at = Instant::now() + pause;
        self.look_at = self.look_at.max(self.retry_at);
        self.lanes.iter_mut().for_each(Lane::failed);
    }
}
