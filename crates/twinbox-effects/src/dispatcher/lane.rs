//! The effects of one vendor in a dispatcher.
use super::{
    call::{CallResult, Called, Taken},
    cycle::{Claim, Want},
    decision::{Rules, Sent},
    options::VendorOptions,
    rows::{Look, Note},
};
use crate::{
    client::{Guard, gate},
    metrics,
    side_effect::EffectState,
    vendor::{Vendor, VendorError},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Bytes of the requests that are under way.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// A vendor that opens so much before its time was resumed by an operator.
const REOPEN_MARGIN: Duration = Duration::from_secs(1);

/// The effects of one vendor that this process sends.
pub(super) struct Lane {
    pub(super) vendor: Arc<dyn Vendor>,
    pub(super) options: VendorOptions,
    pub(super) rules: Rules,
    guard: Arc<Mutex<Guard>>,
    /// Noted as sent, and waiting for a slot.
    ready: VecDeque<Taken>,
    in_flight: usize,
    /// Bytes of what is ready or under way.
    bytes: usize,
    /// The database has due effects, as far as is known.
    is_due: bool,
    is_paused: bool,
    /// Until when the database closes the vendor, as far as is known.
    closed_in_database: Instant,
    /// A cycle claims for this lane.
    is_claiming: bool,
}

impl Lane {
    pub(super) fn new(vendor: impl Vendor, options: VendorOptions) -> Self {
        let (recovery, pauses_as_one) = (vendor.profile().recovery, vendor.pauses_as_one());
        let rules = Rules { recovery, can_look_up: vendor.can_look_up(), policy: options.retries };
        Self {
            vendor: Arc::new(vendor),
            options,
            rules,
            guard: Arc::new(Mutex::new(Guard::new(pauses_as_one))),
            ready: VecDeque::new(),
            in_flight: 0,
            bytes: 0,
            is_due: false,
            is_paused: false,
            closed_in_database: Instant::now(),
            is_claiming: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.vendor.name()
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what the database says about this vendor.
    pub(super) fn looked(&mut self, look: &Look) {
        self.is_due |= look.due_in.is_some_and(|wait| wait.is_zero());
        self.is_paused = look.is_paused;
        let now = Instant::now();
        let closed_until = now.checked_add(look.closed_for).unwrap_or(now);
        if closed_until + REOPEN_MARGIN < self.closed_in_database {
            // An operator has resumed it before its time.
            self.guard().reopen();
        }
        self.guard().close(now.into_std(), look.closed_for);
        self.closed_in_database = closed_until;
        metrics::backlog_age(self.name(), look.overdue);
        metrics::open_breakers(self.name(), self.guard().open_breakers());
    }

    /// Takes up that the database closes this vendor from now on: if the next look finds it open, then an
    /// operator has resumed it.
    pub(super) fn closed(&mut self, wait: Duration) {
        let now = Instant::now();
        self.closed_in_database = self.closed_in_database.max(now.checked_add(wait).unwrap_or(now));
    }

    /// Returns how much a cycle should claim for this lane. `None`: nothing now.
    pub(super) fn want(&mut self, at: usize) -> Option<Want> {
        let is_closed = self.guard().closed_for(Instant::now().into_std()).is_some();
        if !self.is_due || self.is_paused || self.is_claiming || is_closed || self.bytes >= BYTES_MAX {
            return None;
        }
        // Sends that are noted ahead spare a freed slot the wait for a commit. After a crash they look as if
        // they were made, so they are noted ahead only where another send does no harm.
        let ahead = if self.rules.recovery.is_harmless() { self.options.in_flight / 2 } else { 0 };
        let limit = (self.options.in_flight.max(1) + ahead).saturating_sub(self.in_flight + self.ready.len());
        if limit == 0 {
            return None;
        }
        self.is_claiming = true;
        Some(Want {
            lane: at,
            vendor: self.vendor.clone(),
            guard: self.guard.clone(),
            rules: self.rules.clone(),
            timeout: self.options.timeout,
            limit,
            bytes: BYTES_MAX - self.bytes,
        })
    }

    /// Takes up what a cycle has claimed.
    pub(super) fn claimed(&mut self, claim: Claim) {
        (self.is_claiming, self.is_due) = (false, claim.may_have_more);
        self.bytes += claim.taken.iter().map(Taken::bytes).sum::<usize>();
        self.ready.extend(claim.taken);
    }

    /// The transaction failed, and claimed nothing.
    pub(super) fn failed(&mut self) {
        self.is_claiming = false;
    }

    /// The next effect to send, if a slot is free. Notes what is refused by now.
    pub(super) fn next(&mut self, notes: &mut Vec<Note>) -> Option<Taken> {
        while self.in_flight < self.options.in_flight.max(1) {
            let taken = self.ready.pop_front()?;
            let now = Instant::now();
            let refusal = self.guard().refuses(&taken.operation, now.into_std());
            if refusal.is_none() && now <= taken.start_before {
                self.in_flight += 1;
                return Some(taken);
            }
            self.bytes -= taken.bytes();
            notes.push(self.give_back(&taken, refusal.map_or(Duration::ZERO, |refusal| refusal.wait)));
        }
        None
    }

    /// Notes what is ready and will not be sent.
    pub(super) fn abandon(&mut self) -> Vec<Note> {
        let ready = std::mem::take(&mut self.ready);
        self.bytes -= ready.iter().map(Taken::bytes).sum::<usize>();
        ready.iter().map(|taken| self.give_back(taken, Duration::ZERO)).collect()
    }

    fn give_back(&self, taken: &Taken, delay: Duration) -> Note {
        self.guard().give_back(&taken.operation, Instant::now().into_std());
        taken.unsent(delay)
    }

    /// Takes up the result of a call.
    pub(super) fn finished(&mut self, called: Called) -> Note {
        self.in_flight -= 1;
        let Called { taken, result, took, .. } = called;
        self.bytes -= taken.bytes();
        let random = twinbox_core::retry::random();
        let (settled, closes) = match result {
            CallResult::Unsent => return self.give_back(&taken, Duration::ZERO),
            CallResult::Sent(result) => {
                let closes = self.note(&taken, result.as_ref().err());
                metrics::sent(self.name(), taken.kind(), result.as_ref(), took);
                let key_left = taken.key_until.map(|until| until.saturating_duration_since(Instant::now()));
                let was_in_doubt = taken.before == EffectState::Fired;
                let sent = Sent { was_in_doubt, failures: taken.failures, key_left };
                (self.rules.on_sent(sent, result, random), closes)
            }
            CallResult::LookedUp(result) => {
                let closes = self.note(&taken, result.as_ref().err());
                metrics::looked_up(self.name(), taken.kind());
                (self.rules.on_looked_up(taken.failures, result, random), closes)
            }
        };
        let compensates = taken.call.effect.compensates.is_some();
        metrics::settled(self.name(), taken.kind(), &settled, compensates);
        Note { closes: closes.map(|wait| (self.name().to_owned(), wait)), ..taken.note(settled) }
    }

    /// Tells the guard what a call returned. Returns how long the vendor asks to be left alone.
    fn note(&self, taken: &Taken, error: Option<&VendorError>) -> Option<Duration> {
        let operation = &*taken.operation;
        if self.guard().note(operation, error, Instant::now().into_std()) {
            tracing::error!(
                vendor = self.name(),
                operation,
                error = error.map(|error| error as &dyn std::error::Error),
                "the circuit breaker is open: nothing of this operation is sent"
            );
        }
        if let Some(error) = error {
            let cause = error as &dyn std::error::Error;
            let effect = &taken.call.effect;
            tracing::debug!(effect = %effect.id, kind = effect.kind, error = cause, "not confirmed");
        }
        error.filter(|_| self.vendor.pauses_as_one()).and_then(gate)
    }
}
