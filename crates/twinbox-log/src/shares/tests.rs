//! The rule, in all interleavings of a few processes and destinations.
use super::*;
use std::collections::{HashMap, HashSet};

/// The cursor of a destination.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Row {
    owner: Option<usize>,
    /// The count that the owner wrote last.
    owned: i64,
    /// The process that wishes for it, with the count that it wrote.
    wish: Option<(usize, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Model {
    rows: Vec<Row>,
    alive: Vec<bool>,
    /// How many processes may still die or start.
    faults: usize,
}

impl Model {
    fn new(processes: usize, destinations: usize, faults: usize) -> Self {
        Self { rows: vec![Row::default(); destinations], alive: vec![true; processes], faults }
    }

    fn owned(&self, process: usize) -> i64 {
        i64::try_from(self.rows.iter().filter(|row| row.owner == Some(process)).count()).unwrap()
    }

    fn counts(&self) -> Vec<i64> {
        (0..self.alive.len()).filter(|process| self.alive[*process]).map(|p| self.owned(p)).collect()
    }

    fn owners(&self) -> Vec<Option<usize>> {
        self.rows.iter().map(|row| row.owner).collect()
    }

    fn is_even(&self) -> bool {
        let counts = self.counts();
        self.rows.iter().all(|row| row.owner.is_some())
            && counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1
    }

    fn with(&self, row: usize, change: impl FnOnce(&mut Row)) -> Self {
        let mut next = self.clone();
        change(&mut next.rows[row]);
        next
    }

    /// The states that may come next.
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for row in 0..self.rows.len() {
            let living = (0..self.alive.len()).filter(|process| self.alive[*process]);
            all.extend(living.flat_map(|process| self.of_process(process, row)));
            // A wish ends before its time only in name: a process that lives takes what was released for it.
            let wisher = self.rows[row]
                .wish
                .filter(|(wisher, _)| !self.alive[*wisher] || self.rows[row].owner.is_some());
            all.extend(wisher.map(|_| self.with(row, |row| row.wish = None)));
        }
        if self.faults > 0 {
            all.extend((0..self.alive.len()).map(|process| self.fault(process)));
        }
        all.retain(|next| next != self && next.alive.contains(&true));
        all
    }

    fn of_process(&self, process: usize, at: usize) -> Option<Self> {
        let (row, own) = (&self.rows[at], self.owned(process));
        if row.owner == Some(process) {
            // It renews its lease, and finds a wish.
            let gives = row.wish.is_some_and(|(_, theirs)| is_uneven(own, theirs));
            return Some(self.with(at, |row| {
                (row.owner, row.owned) = if gives { (None, row.owned) } else { (Some(process), own) };
            }));
        }
        let wish = match row.wish {
            None => Wish::None,
            Some((wisher, owned)) if wisher == process => Wish::Own { owned, is_old: false },
            Some(_) => Wish::Other,
        };
        if row.owner.is_none() && wish != Wish::Other {
            return Some(self.with(at, |row| *row = Row { owner: Some(process), owned: 0, wish: None }));
        }
        let wishes_elsewhere = self.rows.iter().any(|row| row.wish.is_some_and(|(by, _)| by == process));
        let writes = wishes(own, row.owned, wish, !wishes_elsewhere);
        writes.then(|| self.with(at, |row| row.wish = Some((process, own))))
    }

    /// A process dies, and its leases end; or it starts.
    fn fault(&self, process: usize) -> Self {
        let mut next = Self { faults: self.faults - 1, ..self.clone() };
        next.alive[process] = !next.alive[process];
        let rows = next.rows.iter_mut().filter(|row| row.owner == Some(process));
        rows.for_each(|row| row.owner = None);
        next
    }
}

/// A step to another state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    to: usize,
    /// An owner changes.
    moves: bool,
}

/// The states that a start can lead to, each with its steps.
struct States {
    states: Vec<Model>,
    steps: Vec<Vec<Step>>,
}

impl States {
    fn of(start: Model) -> Self {
        let mut numbers = HashMap::from([(start.clone(), 0)]);
        let (mut states, mut steps) = (vec![start], Vec::new());
        while let Some(state) = states.get(steps.len()).cloned() {
            let next = state.next().into_iter().map(|mut model| {
                let moves = model.owners() != state.owners();
                // Destinations are alike, so their order tells no states apart.
                model.rows.sort();
                let new = states.len();
                let to = *numbers.entry(model.clone()).or_insert(new);
                if to == new {
                    states.push(model);
                }
                Step { to, moves }
            });
            steps.push(Vec::from_iter(next));
        }
        Self { states, steps }
    }

    /// The states from which each state is reached by one step.
    fn before(&self) -> Vec<Vec<usize>> {
        let mut before = vec![Vec::new(); self.states.len()];
        for (state, steps) in self.steps.iter().enumerate() {
            steps.iter().for_each(|step| before[step.to].push(state));
        }
        before
    }

    /// The states from which one of `ends` can be reached.
    fn leading_to(&self, ends: impl Iterator<Item = usize>) -> HashSet<usize> {
        let before = self.before();
        let mut open = Vec::from_iter(ends);
        let mut found: HashSet<usize> = open.iter().copied().collect();
        while let Some(state) = open.pop() {
            open.extend(before[state].iter().filter(|state| found.insert(**state)));
        }
        found
    }

    /// Numbers the states so that two of one number lead to each other.
    fn circles(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut seen = vec![false; self.states.len()];
        for start in 0..self.states.len() {
            let mut path = if seen[start] { Vec::new() } else { vec![(start, 0)] };
            seen[start] = true;
            while let Some((state, at)) = path.last_mut() {
                let Some(step) = self.steps[*state].get(*at) else {
                    order.push(*state);
                    path.pop();
                    continue;
                };
                *at += 1;
                if !std::mem::replace(&mut seen[step.to], true) {
                    path.push((step.to, 0));
                }
            }
        }
        let before = self.before();
        let mut circles = vec![usize::MAX; self.states.len()];
        for start in order.into_iter().rev() {
            let mut open = Vec::from_iter((circles[start] == usize::MAX).then_some(start));
            while let Some(state) = open.pop() {
                if circles[state] == usize::MAX {
                    circles[state] = start;
                    open.extend(&before[state]);
                }
            }
        }
        circles
    }
}

/// Whatever happens in whatever order: owners change a limited number of times, the end is even, and stays.
#[track_caller]
fn ends_even(processes: usize, destinations: usize, faults: usize) {
    let all = States::of(Model::new(processes, destinations, faults));
    println!(
        "{processes} processes, {destinations} destinations, {faults} faults: {} states",
        all.states.len()
    );
    let circles = all.circles();
    for (from, steps) in all.steps.iter().enumerate() {
        let circle = steps.iter().find(|step| step.moves && circles[step.to] == circles[from]);
        assert_eq!(circle, None, "an owner changes again and again from {:?}", all.states[from]);
    }
    let is_even = |state: &usize| all.states[*state].is_even();
    let ends = all.leading_to((0..all.states.len()).filter(is_even));
    let stuck = (0..all.states.len()).find(|state| !ends.contains(state));
    assert_eq!(stuck.map(|state| &all.states[state]), None, "it stays uneven");
}

#[test]
fn shares_become_even_and_stay_so() {
    ends_even(2, 5, 0);
    ends_even(3, 4, 0);
    ends_even(2, 4, 2);
    ends_even(3, 3, 1);
}

#[test]
fn a_difference_of_one_moves_nothing() {
    assert_eq!(
        [(0, 0), (1, 0), (2, 0), (5, 4), (6, 4), (4, 6)].map(|(more, fewer)| is_uneven(more, fewer)),
        [false, false, true, false, true, false]
    );
}

#[test]
fn a_process_wishes_once_at_a_time_and_not_after_a_failure() {
    let shares = Shares::new();
    let [first, second] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    assert_eq!(shares.wish(first, 2, Wish::None), Some(0));
    assert_eq!(shares.wish(second, 2, Wish::None), None, "another relay of the process wishes");
    let written = Wish::Own { owned: 0, is_old: false };
    assert_eq!(shares.wish(first, 2, written), None, "the wish counts for long enough");
    let other = shares.join(second);
    assert_eq!(shares.wish(first, 2, written), Some(1), "the wish names an old count");
    drop(other);
    assert!(shares.is_wisher(first));
    assert_eq!(shares.wish(first, 2, Wish::Other), None);
    assert!(!shares.is_wisher(first), "another process was faster");
    shares.rest();
    assert_eq!(shares.wish(second, 2, Wish::None), None);
}

#[test]
fn a_destination_is_handed_over_once_and_counts_no_more() {
    let shares = Shares::new();
    let [kept, given, late] = [1, 2, 3].map(|owner| shares.join(Uuid::from_u128(owner)));
    assert!(!kept.give(2) && given.give(1) && !given.give(0) && given.leave().is_cancelled());
    assert!(!late.give(1), "two are left");
    assert_eq!((shares.owned(), given.owned()), (2, 3));
    drop(given);
    assert_eq!(shares.owned(), 2);
    drop((kept, late));
    assert_eq!(shares.owned(), 0);
}
