//! Calls of an application and of what keeps its tables.
use super::calls;
use crate::support::{
    effects::{WELCOME, mail},
    operations::{LONG, answer, asked, key, policy},
    stores::{Placed, TestDb, World, effect},
};
use sqlx::AssertSqlSafe;
use std::{
    sync::atomic::{AtomicI64, Ordering::SeqCst},
    time::Duration,
};
use twinbox::{
    Draft, Error, ErrorKind, Timestamp,
    effects::{
        Applied, ClientKeys, Effects,
        drift::{Drift, Expectation, Sweep},
        jobs::Jobs,
    },
    log::{Keeper, Log, OnMaxLag, Reader, ReaderOptions, Retention},
    operation::{OperationError, OperationStart},
    webhook::{WebhookClaim, WebhookReceipt},
};
use uuid::Uuid;

pub(super) fn fresh() -> String {
    Uuid::now_v7().to_string()
}

/// A number of an effect that nobody has used.
fn number() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1_000_000_000);
    NEXT.fetch_add(1, SeqCst)
}

/// Creates a table of an application, once.
pub(super) async fn create<DB: TestDb>(world: &World<DB>, name: &str) {
    let (id, time) = match DB::MODULE {
        "postgres" => ("uuid", "timestamptz"),
        "mysql" => ("BINARY(16)", "DATETIME(6)"),
        _ => ("BLOB", "INTEGER"),
    };
    let create = format!("CREATE TABLE IF NOT EXISTS {name} (id {id} PRIMARY KEY, made_at {time} NOT NULL)");
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.unwrap();
}

/// The error of the database, if there is one.
fn of_store<T>(done: Result<T, OperationError>) -> Result<(), Error> {
    match done {
        Ok(_) => Ok(()),
        Err(OperationError::Store(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

calls! {
    "check": |store, _world| { store.check().await }
    "now": |store, _world| { store.now().await.map(drop) }
    "schema version": |store, _world| { store.schema_version().await.map(drop) }
    "publish": |store, _world| {
        let mut tx = store.begin().await?;
        store.outbox().publish(&mut tx, &Placed { n: 1 }).await?;
        store.outbox().publish_ordered(&mut tx, &Placed { n: 1 }).await?;
        let drafts = vec![Draft::of(&Placed { n: 1 }).unwrap(), Draft::of(&Placed { n: 2 }).unwrap()];
        store.outbox().publish_all(&mut tx, drafts).await?;
        tx.commit().await
    }
    "delay and cancel": |store, _world| {
        let mut tx = store.begin().await?;
        let later = Draft::of(&Placed { n: 1 }).unwrap().not_before(Timestamp::from_micros(i64::MAX / 2));
        let id = store.outbox().publish_draft(&mut tx, later).await?;
        store.outbox().cancel(&mut tx, id).await?;
        tx.commit().await
    }
    "published": |store, _world| { store.published("orders.placed", 10).await.map(drop) }
    "an operation": |store, _world| {
        let (key, policy) = (key(&fresh()), policy(Duration::ZERO));
        of_store(store.operation(&key, &1, &policy, async |_| Ok(2)).await)
    }
    "an operation again": |store, world| {
        let (key, policy) = (key(&fresh()), policy(Duration::ZERO));
        world.operation(&key, &1, &policy, async |_| Ok(2)).await.unwrap();
        of_store(store.operation(&key, &1, &policy, async |_| Ok(2)).await)
    }
    "an operation under a lease": |store, _world| {
        let keys = store.idempotency_keys();
        let key = key(&fresh());
        let begun = keys.lease(&key, &asked("1"), &policy(Duration::ZERO), LONG).await?;
        let OperationStart::Open(mut lease) = begun else { panic!("the key is new") };
        lease.token_within("refund", 0, Duration::MAX).await?;
        lease.save("here").await?;
        let mut operation = lease.begin().await?;
        effect::<DB>(&mut operation.tx(), number()).await?;
        operation.commit(&answer("1")).await
    }
    "a lease that is given back": |store, _world| {
        let keys = store.idempotency_keys();
        for gives_up in [true, false] {
            let begun = keys.lease(&key(&fresh()), &asked("1"), &policy(Duration::ZERO), LONG).await?;
            let OperationStart::Open(lease) = begun else { panic!("the key is new") };
            if gives_up { lease.release().await? } else { lease.forget().await? }
        }
        Ok(())
    }
    "find an operation": |store, _world| {
        store.idempotency_keys().find(&key("a"), &asked("1")).await.map(drop)
    }
    "unfinished operations": |store, _world| {
        let keys = store.idempotency_keys();
        keys.unfinished(10).await?;
        keys.count_unfinished().await?;
        keys.forget_unfinished(&[0; 32]).await.map(drop)
    }
    "erase a person": |store, _world| { store.idempotency_keys().erase("", Some("ada")).await.map(drop) }
    "a webhook": |store, _world| {
        let id = fresh();
        let receipt = WebhookReceipt {
            provider: "stripe", endpoint: "", id: None, payload: id.as_bytes(), secret_index: 0,
        };
        let received = store.receive_webhook(&receipt, Duration::ZERO).await?;
        let WebhookClaim::Open(operation) = received else { panic!("it is new") };
        operation.commit(&answer("1")).await
    }
    "a webhook again": |store, world| {
        let id = fresh();
        let receipt = WebhookReceipt {
            provider: "stripe", endpoint: "", id: None, payload: id.as_bytes(), secret_index: 0,
        };
        let received = world.receive_webhook(&receipt, LONG).await.unwrap();
        let WebhookClaim::Open(operation) = received else { panic!("it is new") };
        operation.commit(&answer("1")).await.unwrap();
        store.receive_webhook(&receipt, LONG).await.map(drop)
    }
    "plan and find an effect": |store, _world| {
        let (effects, source) = (Effects::new(store), Uuid::now_v7());
        let mut tx = store.begin().await?;
        effects.plan(&mut tx, source, WELCOME, mail("hello")).await?;
        effects.plan(&mut tx, source, WELCOME, mail("hello")).await?;
        tx.commit().await?;
        let Some(effect) = effects.find(source, WELCOME).await? else { return Ok(()) };
        effects.get(effect.position).await?;
        effects.get_by_id(effect.id).await?;
        let mut tx = store.begin().await?;
        match effects.compensate(&mut tx, effect.id, "email.sorry", mail("sorry")).await {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => tx.commit().await,
        }
    }
    "a key of a client": |store, _world| {
        let keys = ClientKeys::new(store);
        let id = fresh();
        keys.call_once("orders.create", &id, async |_| Ok(Applied::new())).await?;
        keys.call_once("orders.create", &id, async |_| Ok(Applied::new())).await?;
        keys.purge(Duration::ZERO, 10).await.map(drop)
    }
    "jobs": |store, _world| {
        let jobs = Jobs::new(store);
        let run = jobs.run_now("asked").await?;
        jobs.run(run).await?;
        jobs.runs("asked", 9).await?;
        jobs.list(9).await.map(drop)
    }
    "drift": |store, world| {
        create(world, "payments").await;
        let paid = Expectation::exactly(1).of(WELCOME).per("payments").after(Duration::ZERO, "made_at");
        Drift::new(store).expect(paid)?.run_once(Sweep::Full).await.map(drop)
    }
    "the keeper": |store, _world| {
        let keeper = Keeper::new(store).keep_effects(Duration::ZERO, Duration::ZERO);
        let keeper = keeper.keep_job_runs(Duration::ZERO);
        keeper.purge().await.error.map_or(Ok(()), Err)
    }
    "the keeper of a log with a reader that lags": |store, world| {
        let opened = Reader::open(world, &fresh(), Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
        opened.expect("nobody else reads").close().await.unwrap();
        let retention = Retention::new(Duration::ZERO).max_lag(Duration::ZERO, OnMaxLag::Detach);
        Log::new(store).purge(retention).await.map(drop)
    }
    "move what is due": |store, world| {
        let mut tx = world.begin().await.unwrap();
        let due = Draft::of(&Placed { n: 1 }).unwrap().not_before(Timestamp::from_micros(0));
        world.outbox().publish_draft(&mut tx, due).await.unwrap();
        tx.commit().await.unwrap();
        Log::new(store).move_due(10).await.map(drop)
    }
    "the log": |store, _world| {
        let log = Log::new(store);
        log.recent_types(10).await?;
        log.server_run().await?;
        log.destination_secret(&fresh()).await.map(drop)
    }
    "read the log": |store, _world| {
        let opened = Reader::open(store, &fresh(), Uuid::now_v7(), ReaderOptions::new()).await?;
        opened.expect("nobody else reads").close().await
    }
    "an inbox": |store, _world| {
        let inbox = store.inbox("tests.silence");
        inbox.heartbeat(Some("here")).await?;
        inbox.pause_reason().await?;
        inbox.parked_deliveries().await?;
        inbox.dead_letters(10).await?;
        inbox.dead_letter_bytes().await?;
        inbox.has_due_redrive().await?;
        inbox.purge(Duration::ZERO).await.map(drop)
    }
}
