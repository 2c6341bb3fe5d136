//! All interleavings of a few messages: the real decisions, with a destination and a table of rows in memory.
//!
//! A breadth-first search over all states. In each one, every step that can come next is tried: results come
//! in any order and of every kind, writes take any time, and the process may end and another one take over.
mod steps;

use super::{
    book::Book,
    row::{Change, Want},
    state::Parkable,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher as _},
    io::{self, Write as _},
    sync::Arc,
    time::Instant,
};
use twinbox_core::{
    Draft, Message,
    destination::SendOrder,
    lanes::{Entry, Item},
};

/// A message by its position in the log, from 1.
#[derive(Clone)]
struct Numbered(Arc<Message>);

impl Numbered {
    fn position(&self) -> i64 {
        super::store::position_of(&self.0)
    }
}

impl fmt::Debug for Numbered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.position().fmt(f)
    }
}

impl Item for Numbered {
    fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    fn bytes(&self) -> usize {
        1
    }
}

impl Parkable for Numbered {
    fn message(&self) -> &Message {
        &self.0
    }

    fn resumed(message: Box<Message>) -> Self {
        Self(message.into())
    }
}

/// The log and the destination of one search, which never change.
struct Setup {
    log: Vec<Numbered>,
    order: SendOrder,
    /// Whether a dead letter holds its key.
    dead_hold: bool,
    /// A new owner's book for each cursor. Made once, so that equal states look equal.
    new_books: Vec<Book<Numbered, i64>>,
    now: Instant,
}

impl Setup {
    fn new(keys: &str, order: SendOrder, dead_hold: bool) -> Self {
        let log = (1..).zip(keys.chars()).map(|(position, key)| {
            let mut message = Draft::raw("t", 1, &b""[..]).key(key.to_string()).into_message("model");
            message.sequence = Some(position);
            Numbered(Arc::new(message))
        });
        let log = Vec::from_iter(log);
        let new_books = (0..=i64::try_from(log.len()).unwrap()).map(|cursor| {
            let mut book = Book::new(cursor, true);
            book.lanes.order(order);
            book
        });
        Self { new_books: new_books.collect(), log, order, dead_hold, now: Instant::now() }
    }

    fn len(&self) -> i64 {
        i64::try_from(self.log.len()).unwrap()
    }

    fn message(&self, position: i64) -> &Numbered {
        &self.log[usize::try_from(position - 1).unwrap()]
    }

    fn key(&self, position: i64) -> &str {
        self.message(position).key().unwrap()
    }

    /// The earlier messages of the key of one.
    fn before(&self, position: i64) -> impl Iterator<Item = i64> {
        (1..position).filter(move |earlier| self.key(*earlier) == self.key(position))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Waits,
    Dead { holds: bool },
}

/// A message that was sent and has no result.
#[derive(Debug, Clone)]
struct Sent {
    entry: Entry<Numbered>,
    /// Its number in the order of sending.
    number: u32,
    /// The destination has stored it, because it has told so of a later one of the key.
    is_stored: bool,
}

#[derive(Debug, Clone)]
struct State {
    book: Book<Numbered, i64>,
    /// The cursor at the start of the session, and the rows of earlier owners.
    from: i64,
    known: BTreeSet<i64>,
    /// The last position that was read.
    read: i64,
    sent: u32,
    out: Vec<Sent>,
    /// Keys of an ordered destination, of which none is stored that was sent after a number: until the sender
    /// knows all results.
    broken: BTreeMap<String, u32>,
    stored: BTreeSet<i64>,
    rows: BTreeMap<i64, Row>,
    writing: Option<(Vec<Change>, Option<Want>)>,
    /// Whether a message waits for a retry in place.
    retries: bool,
    /// The failures and the ends of a process that may still come.
    failures: u8,
    crashes: u8,
}

impl State {
    fn new(setup: &Setup, failures: u8, crashes: u8) -> Self {
        Self {
            book: setup.new_books[0].clone(),
            from: 0,
            known: BTreeSet::new(),
            read: 0,
            sent: 0,
            out: Vec::new(),
            broken: BTreeMap::new(),
            stored: BTreeSet::new(),
            rows: BTreeMap::new(),
            writing: None,
            retries: false,
            failures,
            crashes,
        }
    }

    /// Whether the destination stores the message at last, or an operator has to act.
    fn is_ended(&self, setup: &Setup, position: i64) -> bool {
        let is_dead = |at: &i64| matches!(self.rows.get(at), Some(Row::Dead { .. }));
        let holds = |at: &i64| self.rows.get(at) == Some(&Row::Dead { holds: true });
        self.stored.contains(&position)
            || is_dead(&position)
            || self.rows.contains_key(&position) && setup.before(position).any(|earlier| holds(&earlier))
    }

    /// The cursor passes no message that is neither stored nor parked.
    fn check(&self) -> Result<(), String> {
        let lost = (1..=*self.book.lanes.settled())
            .find(|at| !self.stored.contains(at) && !self.rows.contains_key(at));
        lost.map_or(Ok(()), |at| Err(format!("the cursor has passed {at}, which is nowhere")))
    }

    /// Equal states have an equal one. Counters that only grow are left out.
    fn fingerprint(&self, text: &mut String) -> u64 {
        text.clear();
        write!(text, "{self:?}").unwrap();
        let mut hasher = DefaultHasher::new();
        let mut left = text.as_str();
        for counter in ["settle_count: ", "retry_count: "] {
            let (before, after) = left.split_once(counter).expect("the counter");
            hasher.write(before.as_bytes());
            left = after.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        hasher.write(left.as_bytes());
        hasher.finish()
    }
}

/// Visits all states. Returns their number, or the steps to the first wrong one.
fn search(setup: &Setup, failures: u8, crashes: u8) -> Result<usize, String> {
    let first = State::new(setup, failures, crashes);
    let mut text = String::new();
    let mut seen = HashSet::from([first.fingerprint(&mut text)]);
    // The steps to each state, as the number of the one before and the last step.
    let mut paths = vec![(0, None)];
    let mut next = VecDeque::from([(0_usize, first)]);
    while let Some((number, state)) = next.pop_front() {
        let path = |mut at: usize, last: String| {
            let mut steps = vec![last];
            while at > 0 {
                steps.extend(paths[at].1.map(|step| format!("{step:?}")));
                at = paths[at].0;
            }
            steps.reverse();
            steps.join("\n")
        };
        if number.is_multiple_of(32) {
            state.clone().finish(setup).map_err(|wrong| path(number, wrong))?;
        }
        let mut later = Vec::new();
        for step in state.steps(setup) {
            let mut after = state.clone();
            let done = after.step(setup, step).and_then(|()| after.check());
            done.map_err(|wrong| path(number, format!("{step:?}: {wrong}")))?;
            if seen.insert(after.fingerprint(&mut text)) {
                later.push((step, after));
            }
        }
        for (step, after) in later {
            paths.push((number, Some(step)));
            next.push_back((paths.len() - 1, after));
        }
    }
    Ok(seen.len())
}

/// Searches, and prints the number of states, also if the output of tests that pass is not shown.
fn holds(logs: &[&str], order: SendOrder, failures: u8, crashes: u8) {
    for log in logs {
        // The one that holds more is enough where a process ends, and there are many more states.
        for dead_hold in [true, false].into_iter().take(if crashes > 0 { 1 } else { 2 }) {
            let started = Instant::now();
            match search(&Setup::new(log, order, dead_hold), failures, crashes) {
                Ok(states) => writeln!(
                    io::stderr(),
                    "{log} {order:?}, dead letters hold: {dead_hold}, {failures} failures, \
                     {crashes} crashes: {states} states in {:?}",
                    started.elapsed()
                )
                .unwrap(),
                Err(path) => panic!("{log} {order:?}, dead letters hold: {dead_hold}\n{path}"),
            }
        }
    }
}

#[test]
fn an_ordered_destination_keeps_the_order_of_keys_in_all_interleavings() {
    holds(&["AAAA"], SendOrder::Ordered, 3, 0);
    holds(&["AABA", "AABB"], SendOrder::Ordered, 2, 0);
}

#[test]
fn an_ordered_destination_keeps_the_order_of_keys_through_takeovers() {
    holds(&["AAA"], SendOrder::Ordered, 2, 1);
}

#[test]
fn an_ordered_destination_keeps_the_order_of_two_keys_through_takeovers() {
    holds(&["AABB"], SendOrder::Ordered, 1, 1);
}

#[test]
fn one_message_of_a_key_at_a_time_keeps_the_order_in_all_interleavings() {
    holds(&["AAAA", "AABA"], SendOrder::PerMessage, 3, 0);
    holds(&["AAA"], SendOrder::PerMessage, 2, 1);
    holds(&["AABB"], SendOrder::PerMessage, 1, 1);
}
