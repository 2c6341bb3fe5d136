//! The steps that a state allows, and their effects.
use super::{Item as _, Numbered, Row, Sent, Setup, State};
use crate::parking::{
    row::{Action, Change, Look, Want},
    state::ParkedState,
};
use std::time::Duration;
use twinbox_core::{
    destination::SendOrder,
    lanes::{Budget, Entry},
};

/// The result of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Accepted,
    /// Refused for now, and parked.
    Parked,
    /// Refused for good.
    Dead,
    /// Not stored, because an earlier one of its key was not.
    Behind,
    /// Refused for now, or nobody knows whether it is stored: it is tried again in place.
    InDoubt {
        is_stored: bool,
    },
}

/// Which rows are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    None,
    /// The first of each key.
    Heads,
    All,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Read,
    Take,
    Result(usize, Outcome),
    Wake,
    Begin,
    Commit(Due),
    /// The answer of the database is lost.
    LoseAnswer {
        is_committed: bool,
    },
    /// Another process takes over, from a cursor that was recorded. The write under way is committed or not,
    /// and messages under way may have arrived.
    Crash {
        cursor: i64,
        is_committed: bool,
        arrived: usize,
    },
}

impl State {
    pub(super) fn steps(&self, setup: &Setup) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.may_read(setup) {
            steps.push(Step::Read);
        }
        if self.book.lanes.ready() > 0 {
            steps.push(Step::Take);
        }
        for nth in 0..self.out.len() {
            steps.extend(self.outcomes(setup, nth).into_iter().map(|outcome| Step::Result(nth, outcome)));
        }
        if self.retries {
            steps.push(Step::Wake);
        }
        match &self.writing {
            None if self.wants_work() => steps.push(Step::Begin),
            None => {}
            Some((_, want)) => {
                steps.push(Step::Commit(Due::None));
                let waits = self.rows.values().any(|row| *row == Row::Waits);
                if want.is_some() && (waits || self.writes_rows()) {
                    steps.extend([Step::Commit(Due::Heads), Step::Commit(Due::All)]);
                }
                if self.crashes > 0 && setup.order == SendOrder::PerMessage {
                    steps.extend([true, false].map(|is_committed| Step::LoseAnswer { is_committed }));
                }
            }
        }
        if self.crashes > 0 {
            for cursor in self.from..=*self.book.lanes.settled() {
                for is_committed in [false, true].into_iter().take(1 + usize::from(self.writing.is_some())) {
                    let arrived =
                        (0..=self.out.len()).map(|arrived| Step::Crash { cursor, is_committed, arrived });
                    steps.extend(arrived);
                }
            }
        }
        steps
    }

    /// Not before the rows are known.
    fn may_read(&self, setup: &Setup) -> bool {
        self.read < setup.len() && self.book.parking.as_ref().unwrap().waiting.is_some()
    }

    fn wants_work(&self) -> bool {
        let parking = self.book.parking.as_ref().unwrap();
        self.book.has_changes()
            || parking.waiting.is_none()
            || self.rows.values().any(|row| *row == Row::Waits)
    }

    fn writes_rows(&self) -> bool {
        let changes = self.writing.iter().flat_map(|(changes, _)| changes);
        changes.into_iter().any(|change| matches!(change.action, Action::Park(_)))
    }

    fn outcomes(&self, setup: &Setup, nth: usize) -> Vec<Outcome> {
        let sent = &self.out[nth];
        let key = sent.entry.message.key().unwrap();
        if sent.is_stored {
            return vec![Outcome::Accepted];
        }
        if self.broken.get(key).is_some_and(|from| sent.number > *from) {
            return vec![Outcome::Behind];
        }
        let mut outcomes = vec![Outcome::Accepted];
        if self.failures > 0 {
            outcomes.extend([Outcome::Parked, Outcome::Dead]);
            outcomes.extend([true, false].map(|is_stored| Outcome::InDoubt { is_stored }));
        }
        // It may fail by itself before the ones in front of it are stored, but it is stored behind them.
        if setup.order == SendOrder::Ordered
            && self.earlier_out(nth).any(|earlier| !self.out[earlier].is_stored)
        {
            outcomes.retain(|outcome| *outcome != Outcome::InDoubt { is_stored: true });
        }
        outcomes
    }

    /// The messages in flight of the same key that were sent before.
    fn earlier_out(&self, nth: usize) -> impl Iterator<Item = usize> {
        let key = self.out[nth].entry.message.key();
        (0..nth).filter(move |earlier| self.out[*earlier].entry.message.key() == key)
    }

    pub(super) fn step(&mut self, setup: &Setup, step: Step) -> Result<(), String> {
        match step {
            Step::Read => self.read(setup),
            Step::Take => {
                for entry in self.book.take(Budget::messages(1)) {
                    self.sent += 1;
                    self.out.push(Sent { entry, number: self.sent, is_stored: false });
                }
            }
            Step::Result(nth, outcome) => self.hear(setup, nth, outcome)?,
            Step::Wake => {
                self.retries = false;
                self.book.lanes.wake(setup.now);
            }
            Step::Begin => self.writing = self.book.begin(setup.now),
            Step::Commit(due) => {
                let (changes, want) = self.writing.take().unwrap();
                self.write(setup, &changes)?;
                let found = self.look(setup, want, due);
                self.book.take_in(changes, found, "model", setup.now);
            }
            Step::LoseAnswer { is_committed } => {
                self.crashes -= 1;
                let (changes, _) = self.writing.take().unwrap();
                if is_committed {
                    self.write(setup, &changes)?;
                }
                self.book.failed(changes, setup.now);
            }
            Step::Crash { cursor, is_committed, arrived } => {
                self.crashes -= 1;
                for sent in std::mem::take(&mut self.out).into_iter().take(arrived) {
                    let is_behind = self.broken.get(sent.entry.message.key().unwrap());
                    if is_behind.is_none_or(|from| sent.number < *from) {
                        self.store(setup, sent.entry.message.position())?;
                    }
                }
                if let Some((changes, _)) = self.writing.take().filter(|_| is_committed) {
                    self.write(setup, &changes)?;
                }
                self.take_over(setup, cursor);
            }
        }
        Ok(())
    }

    fn take_over(&mut self, setup: &Setup, cursor: i64) {
        self.book = setup.new_books[usize::try_from(cursor).unwrap()].clone();
        self.book.is_reread(true);
        (self.from, self.read, self.known) = (cursor, cursor, self.rows.keys().copied().collect());
        self.broken.clear();
        (self.sent, self.retries) = (0, false);
    }

    /// The reader's part: a message that an earlier owner has parked is settled.
    fn read(&mut self, setup: &Setup) {
        self.read += 1;
        let message = setup.message(self.read).clone();
        match self.book.is_settled(self.read) || self.known.contains(&self.read) {
            true => self.book.lanes.push_settled(self.read),
            false => self.book.lanes.push(message, self.read, true),
        }
    }

    fn store(&mut self, setup: &Setup, position: i64) -> Result<(), String> {
        let may_be_passed =
            |at: &i64| self.stored.contains(at) || self.rows.get(at) == Some(&Row::Dead { holds: false });
        if !self.stored.contains(&position)
            && let Some(passed) = setup.before(position).find(|at| !may_be_passed(at))
        {
            return Err(format!("{position} is stored before {passed}"));
        }
        self.stored.insert(position);
        Ok(())
    }

    /// The session's part: what it does with a result.
    fn hear(&mut self, setup: &Setup, nth: usize, outcome: Outcome) -> Result<(), String> {
        let earlier = Vec::from_iter(self.earlier_out(nth));
        let is_stored = matches!(outcome, Outcome::Accepted | Outcome::InDoubt { is_stored: true });
        if is_stored && setup.order == SendOrder::Ordered {
            for earlier in earlier {
                if !std::mem::replace(&mut self.out[earlier].is_stored, true) {
                    self.store(setup, self.out[earlier].entry.message.position())?;
                }
            }
        }
        let Sent { entry, number, .. } = self.out.remove(nth);
        let key = entry.message.key().unwrap().to_owned();
        if is_stored {
            self.store(setup, entry.message.position())?;
        }
        if !matches!(outcome, Outcome::Accepted | Outcome::Behind) {
            self.failures -= 1;
            if setup.order == SendOrder::Ordered {
                let from = self.broken.entry(key.clone()).or_insert(number);
                *from = number.min(*from);
            }
        }
        if !self.out.iter().any(|sent| sent.entry.message.key() == Some(&key)) {
            self.broken.remove(&key);
        }
        self.renumber();
        self.decide(setup, entry, outcome);
        Ok(())
    }

    /// The same order of sending in small numbers, so that there are no more states than needed.
    fn renumber(&mut self) {
        let mut numbers: Vec<&mut u32> = self.out.iter_mut().map(|sent| &mut sent.number).collect();
        numbers.extend(self.broken.values_mut());
        numbers.sort();
        let (mut last, mut rank) = (0, 0);
        for number in numbers {
            rank += u32::from(*number != last);
            last = std::mem::replace(number, rank);
        }
        self.sent = rank;
    }

    fn decide(&mut self, setup: &Setup, entry: Entry<Numbered>, outcome: Outcome) {
        let (lanes, attempts, now) = (&mut self.book.lanes, entry.ticket.attempt, setup.now);
        let parked = match outcome {
            Outcome::Accepted => return self.book.settle(entry.ticket),
            Outcome::Behind => return lanes.give_back(vec![entry]),
            _ if lanes.is_behind(entry.ticket) => return lanes.retry(entry, now, false),
            Outcome::InDoubt { .. } => {
                self.retries = true;
                return lanes.retry(entry, now, false);
            }
            Outcome::Parked => ParkedState::Waiting(Duration::ZERO),
            Outcome::Dead if setup.dead_hold => ParkedState::DeadHoldingKey,
            Outcome::Dead => ParkedState::Dead,
        };
        self.book.park(entry, parked, attempts, "", None, now);
    }

    fn write(&mut self, setup: &Setup, changes: &[Change]) -> Result<(), String> {
        for change in changes {
            match &change.action {
                Action::Delete(position) if !self.stored.contains(position) => {
                    return Err(format!("the row of {position} is deleted, and it is not stored"));
                }
                Action::Delete(position) => drop(self.rows.remove(position)),
                Action::Park(row) => {
                    let position = crate::parking::store::position_of(&row.message);
                    let row = match row.state {
                        ParkedState::Waiting(_) => Row::Waits,
                        _ => Row::Dead { holds: setup.dead_hold },
                    };
                    self.rows.insert(position, row);
                }
            }
        }
        Ok(())
    }

    /// The same choice of rows as in the database.
    fn look(&self, setup: &Setup, want: Option<Want>, due: Due) -> Look {
        let waiting = self.rows.values().filter(|row| **row == Row::Waits).count();
        let mut found = Look { waiting, ..Look::default() };
        let holding = self.rows.iter().filter(|(_, row)| **row != Row::Dead { holds: false });
        let holding = Vec::from_iter(holding.map(|(position, row)| (*position, *row)));
        for (position, row) in &holding {
            let key = setup.key(*position);
            if found.keys.iter().any(|other| other == key) {
                continue;
            }
            found.keys.push(key.to_owned());
            let Some(want) = want.as_ref().filter(|_| due != Due::None && *row == Row::Waits) else {
                continue;
            };
            let run = holding.iter().filter(|(other, _)| other >= position && setup.key(*other) == key);
            let run = run.take_while(|(other, row)| *row == Row::Waits && !want.taken.contains(other));
            let most = if due == Due::All { usize::MAX } else { 1 };
            found.due.extend(
                run.take(most)
                    .map(|(other, _)| (*other, 1, Box::new(setup.message(*other).0.as_ref().clone()))),
            );
        }
        found
    }

    /// From here on all goes well: everything arrives, or waits for an operator.
    pub(super) fn finish(mut self, setup: &Setup) -> Result<(), String> {
        for _ in 0..40 {
            let all_ended = (1..=setup.len()).all(|position| self.is_ended(setup, position));
            if all_ended && *self.book.lanes.settled() == setup.len() {
                break;
            }
            while self.may_read(setup) {
                self.step(setup, Step::Read)?;
            }
            while !self.out.is_empty() {
                let outcome = self.outcomes(setup, 0)[0];
                self.step(setup, Step::Result(0, outcome))?;
            }
            self.step(setup, Step::Wake)?;
            if self.writing.is_none() && self.wants_work() {
                self.step(setup, Step::Begin)?;
            }
            if self.writing.is_some() {
                self.step(setup, Step::Commit(Due::All))?;
            }
            while self.book.lanes.ready() > 0 {
                self.step(setup, Step::Take)?;
            }
            self.check()?;
        }
        match (1..=setup.len()).find(|position| !self.is_ended(setup, *position)) {
            Some(stuck) => {
                Err(format!("{stuck} is neither stored nor does it wait for an operator: {self:?}"))
            }
            None if *self.book.lanes.settled() < setup.len() => {
                Err(format!("the cursor stays behind: {self:?}"))
            }
            None => Ok(()),
        }
    }
}
