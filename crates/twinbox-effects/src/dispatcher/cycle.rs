//! One transaction of a dispatcher: writes results, and claims effects.
use super::{
    call::Taken,
    decision::{Claimed, Rules, Settled, Step},
    rows::{self, Note, Undecodable},
};
use crate::{
    client::Guard,
    metrics,
    request::kind_base,
    side_effect::SideEffect,
    token::effect_token,
    vendor::{Vendor, VendorCall},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, Error, HandlerError,
    engine::{Engine, micros, query},
};
use uuid::Uuid;

/// How long an effect may be noted as sent before it is sent.
const READY_MAX: Duration = Duration::from_secs(15);

/// A wish to claim effects of a vendor.
pub(super) struct Want {
    pub(super) lane: usize,
    pub(super) vendor: Arc<dyn Vendor>,
    pub(super) guard: Arc<Mutex<Guard>>,
    pub(super) rules: Rules,
    pub(super) timeout: Duration,
    pub(super) limit: usize,
    pub(super) bytes: usize,
}

/// The effects that were claimed for a vendor.
pub(super) struct Claim {
    pub(super) lane: usize,
    pub(super) taken: Vec<Taken>,
    pub(super) may_have_more: bool,
}

/// A transaction that failed, or whose end is not known.
pub(super) struct CycleError {
    pub(super) error: Error,
    /// The results that are to be written again. The fence makes that harmless.
    pub(super) notes: Vec<Note>,
}

pub(super) struct Cycle<DB: Dialect> {
    pub(super) engine: Engine<DB>,
    pub(super) owner: Uuid,
    pub(super) notes: Vec<Note>,
    pub(super) wants: Vec<Want>,
}

impl<DB: Dialect> Cycle<DB> {
    pub(super) async fn run(mut self) -> Result<Vec<Claim>, CycleError> {
        let mut claims = Vec::new();
        match rows::in_time(self.transaction(&mut claims)).await {
            Ok(()) => Ok(claims),
            Err(error) => {
                // The commit may have happened. What it claimed was not sent.
                let taken = claims.iter().flat_map(|claim| &claim.taken);
                self.notes.extend(taken.map(|taken| taken.unsent(Duration::ZERO)));
                for (claim, want) in claims.iter().zip(&self.wants) {
                    let mut guard = want.guard.lock().unwrap_or_else(PoisonError::into_inner);
                    claim
                        .taken
                        .iter()
                        .for_each(|taken| guard.give_back(&taken.operation, Instant::now().into_std()));
                }
                Err(CycleError { error, notes: self.notes })
            }
        }
    }

    async fn transaction(&self, claims: &mut Vec<Claim>) -> Result<(), Error> {
        let catalog = self.engine.catalog();
        let begun = Instant::now();
        let mut tx = self.engine.begin_short().await?;
        rows::settle::<DB>(&mut tx, catalog, self.owner, &self.notes).await?;
        let (mut take, mut unnamed) = (Vec::new(), Vec::new());
        let (mut decided, mut labels) = (Vec::new(), Vec::new());
        for want in &self.wants {
            let claimed =
                rows::claim::<DB>(&mut tx, catalog, want.vendor.name(), want.limit, want.bytes).await?;
            let may_have_more = claimed.len() == want.limit;
            let mut taken = Vec::new();
            for row in claimed {
                match want.decide(row, begun) {
                    Decision::Take { taken: one, row, is_named } => {
                        if !is_named {
                            unnamed.push((one.call.effect.id, one.call.effect.position));
                        }
                        take.push(row);
                        taken.push(*one);
                    }
                    Decision::Settle(note, kind) => {
                        decided.push(note);
                        labels.push((want.vendor.name(), kind));
                    }
                }
            }
            claims.push(Claim { lane: want.lane, taken, may_have_more });
        }
        rows::settle::<DB>(&mut tx, catalog, self.owner, &decided).await?;
        if !take.is_empty() {
            let rows = Value::Array(take).to_string();
            query::<DB>(&catalog.sql.effects.take).bind(self.owner).bind(rows).execute(&mut *tx).await?;
        }
        for (id, position) in unnamed {
            query::<DB>(&catalog.sql.effects.name).bind(id).bind(position).execute(&mut *tx).await?;
        }
        crash::point("effects.before_commit");
        tx.commit().await?;
        for (note, (vendor, kind)) in decided.iter().zip(&labels) {
            metrics::settled(vendor, kind_base(kind), &note.settled, note.compensates.is_some());
        }
        Ok(())
    }
}

enum Decision {
    Take {
        taken: Box<Taken>,
        row: Value,
        is_named: bool,
    },
    /// The result, and the kind of the effect.
    Settle(Note, String),
}

impl Want {
    fn decide(&self, row: Result<Claimed, Undecodable>, begun: Instant) -> Decision {
        let claimed = match row {
            Ok(claimed) => claimed,
            Err(Undecodable { effect, error }) => {
                let with_causes = HandlerError::reject(error).to_string();
                return settle(&effect, Settled::unfit(effect.state, &with_causes));
            }
        };
        // Another program may have written what `plan` refuses, such as credentials.
        if let Err(error) = claimed.effect.request.check(&claimed.effect.kind) {
            let unfit = Settled::unfit(claimed.effect.state, &error.to_string());
            return settle(&claimed.effect, unfit);
        }
        let (failures, is_look_up) = match self.rules.on_claim(&claimed) {
            Step::Settle(settled) => return settle(&claimed.effect, settled),
            Step::Send { failures } => (failures, false),
            Step::LookUp { failures } => (failures, true),
        };
        let Claimed { effect, key_left, is_named, .. } = claimed;
        let operation = self.vendor.operation(&effect).to_owned();
        let admitted = {
            let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
            guard.admit(&operation, effect.failures > 0 && !is_look_up, begun.into_std())
        };
        if let Err(refusal) = admitted {
            // Nothing was sent: neither the state nor the attempts change.
            let postponed = Settled { failures, ..Settled::new(effect.state, Some(refusal.wait)) };
            return settle(&effect, postponed);
        }
        let lease = self.timeout + READY_MAX;
        let window = self.rules.recovery.key_window();
        let token = effect.idempotency_key.clone().unwrap_or_else(|| {
            let token = effect_token(effect.source_id, &effect.kind, effect.generation);
            self.vendor.profile().format.format(token)
        });
        let row = json!({
            "position": effect.position,
            "fires": !is_look_up,
            "lease": micros(lease),
            "token": token,
            "key_window": window.filter(|_| !is_look_up).map(micros),
            "failures": failures,
        });
        let attempt = effect.attempts + u32::from(!is_look_up);
        let key_until = key_left.or(window).and_then(|left| begun.checked_add(left));
        let start_before = key_until.filter(|_| !is_look_up).unwrap_or(begun + READY_MAX);
        let taken = Taken {
            operation,
            attempt,
            before: effect.state,
            failures: effect.failures + failures,
            key_until,
            start_before: start_before.min(begun + READY_MAX),
            is_look_up,
            call: VendorCall { effect: SideEffect { attempts: attempt, ..effect }, token },
        };
        Decision::Take { taken: Box::new(taken), row, is_named }
    }
}

/// Gives a row that this transaction has locked a new state.
fn settle(effect: &SideEffect, settled: Settled) -> Decision {
    let (has_key, compensates) = (effect.request.key.is_some(), effect.compensates);
    let note = Note { position: effect.position, attempt: None, settled, has_key, compensates, closes: None };
    Decision::Settle(note, effect.kind.clone())
}
