//! Operations at random, held against what they should do. t31
use crate::support::{
    cases::cases,
    long,
    operations::{answer, asked, key, policy},
    stores::{TestDb, World, effect, sql_of},
};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use std::{collections::HashMap, time::Duration};
use twinbox::{
    ErrorKind,
    operation::{Operation, OperationKey, OperationLease, OperationStart},
};

const STEPS: usize = 40;
const LONG: Duration = Duration::from_secs(3600);
const BODIES: [&str; 2] = ["1", "2"];

/// What somebody does with one of the keys.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// In a transaction, which commits or not.
    Transaction {
        key: usize,
        body: usize,
        commits: bool,
    },
    Hold {
        key: usize,
        body: usize,
    },
    Save {
        key: usize,
    },
    End {
        key: usize,
        commits: bool,
    },
    Release {
        key: usize,
    },
    Forget {
        key: usize,
    },
    /// Whoever holds it stands still for longer than its lease.
    RunsOut {
        key: usize,
    },
    Expires {
        key: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, body) = (0..2usize, 0..2usize);
    let step = prop_oneof![
        3 => (key.clone(), body.clone(), any::<bool>())
            .prop_map(|(key, body, commits)| Step::Transaction { key, body, commits }),
        4 => (key.clone(), body).prop_map(|(key, body)| Step::Hold { key, body }),
        1 => key.clone().prop_map(|key| Step::Save { key }),
        2 => (key.clone(), any::<bool>()).prop_map(|(key, commits)| Step::End { key, commits }),
        1 => key.clone().prop_map(|key| Step::Release { key }),
        1 => key.clone().prop_map(|key| Step::Forget { key }),
        1 => key.clone().prop_map(|key| Step::RunsOut { key }),
        1 => key.prop_map(|key| Step::Expires { key }),
    ];
    proptest::collection::vec(step, STEPS)
}

/// A key as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Free,
    /// By the holder of that number, whose lease may be over, or by nobody any more.
    Held {
        body: usize,
        by: Option<usize>,
        is_over: bool,
        saved: bool,
        attempt: u32,
    },
    Done {
        body: usize,
        answer: i64,
    },
}

struct Run<'w, DB: TestDb> {
    world: &'w World<DB>,
    names: [OperationKey; 2],
    should: [Key; 2],
    /// By key: everybody who has held it and not let go, the last at the end.
    holders: HashMap<usize, Vec<(usize, OperationLease<DB>)>>,
    /// Counts holders and effects.
    n: i64,
    effects: Vec<i64>,
}

impl<DB: TestDb> Run<'_, DB> {
    async fn step(&mut self, step: Step) {
        match step {
            Step::Transaction { key, body, commits } => self.transaction(key, body, commits).await,
            Step::Hold { key, body } => self.hold(key, body).await,
            Step::Save { key } => {
                let should = self.should[key];
                let Some((number, lease)) = self.holders.get_mut(&key).and_then(|all| all.last_mut()) else {
                    return;
                };
                let saved = lease.save("here").await;
                match &mut self.should[key] {
                    Key::Held { by, saved: should_be, is_over, .. } if *by == Some(*number) => {
                        saved.unwrap();
                        (*should_be, *is_over) = (true, false);
                    }
                    _ => assert_eq!(saved.unwrap_err().kind(), ErrorKind::LeaseLost, "{should:?}"),
                }
            }
            Step::End { key, commits } => self.end(key, commits).await,
            Step::Release { key } => self.let_go(key, false).await,
            Step::Forget { key } => self.let_go(key, true).await,
            Step::RunsOut { key } => {
                self.set(key, "lease_until = created_at WHERE status = 'pending' AND").await
            }
            Step::Expires { key } => {
                self.set(key, "expires_at = created_at WHERE status <> 'pending' AND").await;
                if let Key::Done { .. } = self.should[key] {
                    self.should[key] = Key::Free;
                }
            }
        }
        if let Step::RunsOut { key } = step
            && let Key::Held { is_over, .. } = &mut self.should[key]
        {
            *is_over = true;
        }
    }

    /// As the database would be told by nobody.
    async fn set(&self, key: usize, what: &str) {
        let table = DB::table_of("idempotency_keys");
        let sql = format!("UPDATE {table} SET {what} key = '{}'", self.names[key].key);
        let mut conn = self.world.pool().acquire().await.unwrap();
        sqlx::raw_sql(sql_of::<DB>(&sql)).execute(&mut *conn).await.unwrap();
    }

    /// What whoever asks should be told. None: it may do it.
    fn told(&self, key: usize, body: usize) -> Option<&'static str> {
        match self.should[key] {
            Key::Free => None,
            Key::Held { body: of, .. } | Key::Done { body: of, .. } if of != body => Some("mismatch"),
            Key::Held { by: None, .. } | Key::Held { is_over: true, .. } => None,
            Key::Held { .. } => Some("in flight"),
            Key::Done { .. } => Some("known"),
        }
    }

    fn check<T>(&self, key: usize, body: usize, begun: OperationStart<T>) -> Option<T> {
        let told = self.told(key, body);
        match begun {
            OperationStart::Open(open) => {
                assert_eq!(told, None);
                return Some(open);
            }
            OperationStart::Completed(known) => {
                let Key::Done { answer: n, .. } = self.should[key] else { panic!("{:?}", self.should[key]) };
                assert_eq!((told, known), (Some("known"), answer(&n.to_string())));
            }
            OperationStart::Mismatch => assert_eq!(told, Some("mismatch")),
            OperationStart::InFlight => assert_eq!(told, Some("in flight")),
            OperationStart::TooMany => panic!("there is no quota"),
        }
        None
    }

    async fn transaction(&mut self, key: usize, body: usize, commits: bool) {
        let at_once = policy(Duration::ZERO);
        let begun = self
            .world
            .idempotency_keys()
            .begin(&self.names[key], &asked(BODIES[body]), &at_once)
            .await
            .unwrap();
        let Some(operation) = self.check(key, body, begun) else { return };
        self.write(key, body, operation, commits).await;
    }

    async fn write(&mut self, key: usize, body: usize, mut operation: Operation<DB>, commits: bool) {
        self.n += 1;
        effect::<DB>(&mut operation.tx(), self.n).await.unwrap();
        if !commits {
            return operation.abandon().await;
        }
        operation.commit(&answer(&self.n.to_string())).await.unwrap();
        self.should[key] = Key::Done { body, answer: self.n };
        self.effects.push(self.n);
    }

    async fn hold(&mut self, key: usize, body: usize) {
        let at_once = policy(Duration::ZERO);
        let begun =
            self.world.idempotency_keys().lease(&self.names[key], &asked(BODIES[body]), &at_once, LONG).await;
        let Some(lease) = self.check(key, body, begun.unwrap()) else { return };
        let (before, saved) = match self.should[key] {
            Key::Held { attempt, saved, .. } => (attempt, saved),
            _ => (0, false),
        };
        assert_eq!((lease.attempt(), lease.recovery_point().is_some()), (before + 1, saved));
        self.n += 1;
        let number = usize::try_from(self.n).unwrap();
        self.should[key] = Key::Held { body, by: Some(number), is_over: false, saved, attempt: before + 1 };
        self.holders.entry(key).or_default().push((number, lease));
    }

    async fn end(&mut self, key: usize, commits: bool) {
        let Some((number, lease)) = self.holders.get(&key).and_then(|all| all.last()) else { return };
        let Key::Held { body, by, .. } = self.should[key] else {
            assert_eq!(lease.begin().await.err().unwrap().kind(), ErrorKind::LeaseLost);
            return;
        };
        // Nobody else has taken it, though the lease has run out.
        let is_mine = by == Some(*number);
        let operation = match lease.begin().await {
            Ok(operation) if is_mine => operation,
            Ok(_) => panic!("it is another's: {:?}", self.should[key]),
            Err(error) => {
                assert!(!is_mine && error.kind() == ErrorKind::LeaseLost, "{error:?} {:?}", self.should[key]);
                return;
            }
        };
        self.write(key, body, operation, commits).await;
    }

    async fn let_go(&mut self, key: usize, forgets: bool) {
        let Some((number, lease)) = self.holders.get_mut(&key).and_then(Vec::pop) else { return };
        if forgets {
            lease.forget().await.unwrap()
        } else {
            lease.release().await.unwrap()
        }
        if let Key::Held { by, saved, attempt, .. } = &mut self.should[key]
            && *by == Some(number)
        {
            *by = None;
            // A try before this one may have done something.
            if forgets && !*saved && *attempt == 1 {
                self.should[key] = Key::Free;
            }
        }
    }
}

async fn t31_whatever_happens_keys_are_as_they_should_be<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (mut n, mut effects) = (0, Vec::new());
    for seed in 0..long::or(24_u64, 12) {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[u8::try_from(seed).unwrap(); 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let all = steps().new_tree(&mut runner).unwrap().current();
        let names = [0, 1].map(|of| key(&format!("{seed}-{of}")));
        let mut run =
            Run { world: &world, names, should: [Key::Free; 2], holders: HashMap::new(), n, effects };
        for (at, step) in all.iter().enumerate() {
            eprintln!("sequence {seed}, step {at}: {step:?}");
            run.step(*step).await;
        }
        (n, effects) = (run.n, run.effects);
    }
    assert_eq!(world.effects().await, effects);
}

cases! { all: [t31_whatever_happens_keys_are_as_they_should_be] }
