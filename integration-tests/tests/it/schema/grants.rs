//! The documented rights are enough to run with, and no more than that.
mod denied;
mod excess;
mod granted;

use crate::support::{
    cases::cases_on,
    consumer::run_until,
    roles::Roles,
    stores::{Confirmed, Placed, World, effect, sql_of},
    wait::{eventually, in_time},
};
use denied::{
    an_entry_of_the_audit_is_ended_once_and_by_its_own_role, no_role_writes_a_time_that_no_program_reads,
    no_session_turns_the_rules_of_columns_off, the_audit_knows_which_role_acted,
    what_the_page_does_not_grant_is_refused, who_blanks_messages_cannot_forge_one,
    who_blanks_responses_cannot_forge_one,
};
use excess::{
    a_store_of_tests_has_the_rights_of_the_page_and_no_more, each_way_to_a_right_is_found,
    what_a_role_cannot_see_is_named,
};
use granted::Granted;
use sqlx::{AssertSqlSafe, Pool};
use std::time::Duration;
use twinbox::{
    CancellationToken, Consumer, Delivery, Draft, Error, ErrorKind, HandlerError, HandlerResult, Message,
    MessageId, Store, Timestamp, Tx,
    effects::{
        Applied, ClientKeys, Once,
        jobs::{Job, JobRunner, Jobs},
    },
    event_handler,
    log::{Keeper, Log, OnMaxLag, Reader, ReaderOptions, Retention},
    operation::{OperationKey, OperationPolicy, OperationResponse, OperationStart, RequestDigest},
    ops::{
        AuditIntent, Ops, Role,
        dead_letters::{DeadLetterAction, DeadLetterFilter, DeadLetterId},
        effects::EffectFilter,
        replays::{NewReplay, ReplayState, Selection},
    },
    webhook::{WebhookClaim, WebhookReceipt},
};
use uuid::Uuid;

/// The statement is refused, because the role lacks a right.
async fn forbidden<DB: Granted>(pool: &Pool<DB>, sql: &str) {
    let mut conn = pool.acquire().await.unwrap();
    let refused = sqlx::raw_sql(sql_of::<DB>(sql)).execute(&mut *conn).await.map(drop).expect_err(sql);
    assert!(Error::from(refused).is_forbidden(), "{sql}");
}

async fn publish<DB: Granted>(store: &Store<DB>, range: std::ops::Range<i64>) {
    let mut tx = store.begin().await.unwrap();
    for n in range {
        effect::<DB>(&mut tx, 1_000 + n).await.unwrap();
        store.outbox().publish_ordered(&mut tx, &Placed { n }).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// As the documentation says for any language; none of it is committed.
async fn publish_in_sql<DB: Granted>(store: &Store<DB>) {
    let mut tx = store.begin().await.unwrap();
    for sql in DB::PUBLISH {
        sqlx::raw_sql(sql_of::<DB>(sql)).execute(&mut *tx).await.unwrap();
    }
    tx.rollback().await.unwrap();
}

/// Due at once.
async fn delay<DB: Granted>(store: &Store<DB>, n: i64) -> MessageId {
    let mut tx = store.begin().await.unwrap();
    let draft = Draft::of(&Placed { n }).unwrap().not_before(Timestamp::from_micros(0));
    let id = store.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
    id
}

async fn delay_and_cancel<DB: Granted>(store: &Store<DB>) {
    let id = delay(store, 9).await;
    let mut tx = store.begin().await.unwrap();
    assert!(store.outbox().cancel(&mut tx, id).await.unwrap());
    tx.commit().await.unwrap();
}

/// One in a transaction, one that is held and given up twice, one that is held and ends; all have expired.
async fn answer_requests<DB: Granted>(store: &Store<DB>) {
    let policy = OperationPolicy { keep: Duration::ZERO, ..OperationPolicy::default() };
    let key = |key: &str| OperationKey { key: key.into(), ..OperationKey::default() };
    store.operation(&key("a"), &1, &policy, async |_| Ok(2)).await.unwrap();
    let held = async || {
        let request = RequestDigest::default();
        let begun = store
            .idempotency_keys()
            .lease(&key("b"), &request, &policy, Duration::from_secs(60))
            .await
            .unwrap();
        let OperationStart::Open(lease) = begun else { panic!("the key is free") };
        lease
    };
    held().await.release().await.unwrap();
    held().await.forget().await.unwrap();
    let mut lease = held().await;
    lease.save("here").await.unwrap();
    lease.begin().await.unwrap().commit(&OperationResponse::default()).await.unwrap();
    let receipt =
        WebhookReceipt { provider: "stripe", endpoint: "", id: None, payload: b"", secret_index: 0 };
    let received = store.receive_webhook(&receipt, Duration::ZERO).await.unwrap();
    let WebhookClaim::Open(operation) = received else { panic!("it is new") };
    operation.commit(&OperationResponse::default()).await.unwrap();
}

/// Uses every table: succeeds, fails, is rejected, publishes.
#[event_handler(consumer = "tests.grants")]
async fn handle<DB: Granted>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    match (order.n, order.attempt()) {
        (1, 1) => Err("once more".into()),
        (2, _) => Err(HandlerError::reject("never")),
        _ => Ok(()),
    }
}

/// Reads the log as the destination `relay` until it sees the order `last`. `settles`: settles what it reads.
async fn relay<DB: Granted>(store: &Store<DB>, last: i64, settles: bool) {
    let opened = Reader::open(store, "relay", Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
    let mut reader = opened.expect("nobody else reads");
    let last = last.to_string();
    let mut is_seen = false;
    while !is_seen {
        for entry in in_time(reader.next(10)).await.unwrap() {
            let Message { event_type, key, .. } = &*entry.message;
            is_seen |= event_type == "orders.placed" && *key == Some(last.clone());
            if settles {
                reader.settle(entry.ticket);
            }
        }
    }
    reader.close().await.unwrap();
    Log::new(store).destination_secret("relay").await.unwrap();
}

/// Replays, letters, and holding back, as the tool does it; and what the runtime makes of it.
/// Somebody who only looks sees what the console shows, and changes nothing.
async fn look<DB: Granted>(world: &World<DB>, roles: &Roles) {
    let viewer = DB::store_of(world, &roles.viewer).await;
    viewer.check().await.unwrap();
    let ops = Ops::new(&viewer);
    assert_eq!((ops.readers().await.unwrap().len(), ops.consumers().await.unwrap().len()), (2, 1));
    let groups = ops.dead_letter_groups(&DeadLetterFilter::default()).await.unwrap();
    let id = groups[0].newest.id.clone();
    assert!(ops.dead_letter(&id).await.unwrap().is_some());
    ops.dead_letter_message(&id).await.unwrap();
    ops.trail("0").await.unwrap();
    assert!(!ops.key_page("0", None, 10).await.unwrap().messages.is_empty());
    ops.parked_of_key("0", 10).await.unwrap();
    ops.parked_deliveries("tests.grants", 10).await.unwrap();
    ops.partition_checkpoints("tests.grants").await.unwrap();
    ops.effects(&EffectFilter::default(), None, 10).await.unwrap();
    ops.effect_problems(Duration::ZERO).await.unwrap();
    ops.vendors().await.unwrap();
    ops.delayed_overdue().await.unwrap();
    assert!(!ops.jobs().await.unwrap().is_empty());
    ops.drift().await.unwrap();
    ops.unfinished_operations(10).await.unwrap();
    ops.plan_replay("consumer:tests.grants", &Selection::new()).await.unwrap();
    assert!(ops.replays(10).await.unwrap().is_empty() && ops.bulk_actions(10).await.unwrap().is_empty());
    assert!(ops.audit(10).await.unwrap().is_empty());
    let intent = AuditIntent { operator: "eve", command: "x", target: "y", reason: None };
    assert!(ops.begin_audit(&intent).await.unwrap_err().is_forbidden());
    assert!(ops.pause_consumer("tests.grants", "no").await.unwrap_err().is_forbidden());
    assert!(ops.redrive(&[id], Duration::ZERO).await.unwrap_err().is_forbidden());
    viewer.pool().close().await;
}

async fn operate<DB: Granted>(world: &World<DB>, roles: &Roles, runtime: &Store<DB>) {
    let operator = DB::store_of(world, &roles.operator).await;
    operator.check().await.unwrap();
    let plan = Ops::new(&operator)
        .plan_replay("consumer:tests.grants", &Selection::new().key(Some("0".into())))
        .await;
    let new = NewReplay::reprocess("tests.grants", "ada");
    let replay = Ops::new(&operator).make_replay(&plan.unwrap(), new).await.unwrap();
    Ops::new(&operator).pause_replay(replay.id, "lunch").await.unwrap();
    Ops::new(&operator).resume_replay(replay.id).await.unwrap();
    world.execute("DELETE FROM effects WHERE n = 0").await;
    let rerun = || Consumer::new(runtime.clone(), ()).handler::<handle>();
    let is_done = async || Ops::new(&operator).replay(replay.id).await.unwrap().state == ReplayState::Done;
    run_until(rerun(), is_done).await;
    assert_eq!((world.rows("superseded_claims").await, world.rows("consumers").await), (1, 1));
    Ops::new(&operator).cancel_replay(replay.id).await.unwrap();

    let entry = Ops::new(&operator)
        .begin_audit(&AuditIntent { operator: "ada", command: "x", target: "y", reason: None })
        .await
        .unwrap();
    Ops::new(&operator).end_audit(entry, 1).await.unwrap();
    assert_eq!(Ops::new(&operator).audit(10).await.unwrap().len(), 1);
    Ops::new(&operator).pause_consumer("tests.grants", "lunch").await.unwrap();
    Ops::new(&operator).resume_consumer("tests.grants").await.unwrap();
    Ops::new(&operator).pause_destination("relay", "lunch").await.unwrap();
    Ops::new(&operator).resume_destination("relay").await.unwrap();
    assert_eq!(Ops::new(&operator).release_key("relay", "0").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Ops::new(&operator).skip_parked("relay", "0").await.unwrap_err().kind(), ErrorKind::NotFound);
    Ops::new(&operator).trail("0").await.unwrap();
    assert_eq!(Ops::new(&operator).missing_rights(None, Role::Operator).await.unwrap(), Some(Vec::new()));
    assert_ne!(Ops::new(&operator).missing_rights(None, Role::Redactor).await.unwrap(), Some(Vec::new()));
    assert!(!Ops::new(&operator).backlog(Some(Timestamp::from_micros(0))).await.unwrap().is_empty());
    assert_eq!(
        (
            Ops::new(&operator).readers().await.unwrap().len(),
            Ops::new(&operator).consumers().await.unwrap().len()
        ),
        (2, 1)
    );
    assert_eq!(Ops::new(&operator).consumer_names().await.unwrap(), ["tests.grants"]);
    assert!(Ops::new(&operator).consumer_backlog("tests.grants").await.unwrap().last_claim.is_some());
    assert!(Ops::new(&operator).partition_checkpoints("tests.grants").await.unwrap().is_empty());
    let groups = Ops::new(&operator).dead_letter_groups(&DeadLetterFilter::default()).await.unwrap();
    let [dead_letter] = [groups[0].newest.id.clone()];
    assert_eq!(
        Ops::new(&operator).redrive(std::slice::from_ref(&dead_letter), Duration::ZERO).await.unwrap(),
        1
    );
    let has_failed = format!("SELECT count(*) FROM {} WHERE attempts = 2", DB::table_of("dead_letters"));
    run_until(rerun(), async || world.number(&has_failed).await == 1).await;
    let filter =
        DeadLetterFilter { consumer: Some("tests.grants".to_owned()), ..DeadLetterFilter::default() };
    let plan = Ops::new(&operator).plan_bulk_action(DeadLetterAction::Redrive, &filter).await.unwrap();
    let intent = AuditIntent { operator: "ada", command: "x", target: "y", reason: None };
    let bulk = Ops::new(&operator).make_bulk_action(&plan, Duration::ZERO, &intent).await.unwrap();
    let is_done = async || Ops::new(&operator).bulk_action(bulk.id).await.unwrap().state.has_ended();
    run_until(rerun(), is_done).await;
    assert_eq!(Ops::new(&operator).bulk_action(bulk.id).await.unwrap().changed, 1);
    assert!(!Ops::new(&operator).cancel_bulk_action(bulk.id).await.unwrap());
    let unknown = DeadLetterId::OfDestination("relay".to_owned(), 1);
    assert_eq!(Ops::new(&operator).redrive(std::slice::from_ref(&unknown), Duration::ZERO).await.unwrap(), 0);
    assert_eq!(Ops::new(&operator).discard(&[unknown]).await.unwrap(), 0);
    let mended = Draft::of(&Placed { n: 30 }).unwrap().into_message("shop");
    assert_eq!(
        Ops::new(&operator).import_dead_letters("tests.grants", std::slice::from_ref(&mended)).await.unwrap(),
        1
    );
    assert_eq!(Ops::new(&operator).import_dead_letters("tests.grants", &[mended]).await.unwrap(), 0);
    run_until(rerun(), async || world.effects().await.contains(&30)).await;
    Ops::new(&operator).retire("nothing").await.unwrap();
    for sql in DB::OPERATOR {
        forbidden(operator.pool(), sql).await;
    }
    operator.pool().close().await;
}

/// An operator asks for a run of a job, and the runtime runs it.
async fn run_a_job<DB: Granted>(world: &World<DB>, roles: &Roles, runtime: &Store<DB>) {
    let job = Job::new("a", "0 0 1 1 *").unwrap().handler(async |_| Ok(()));
    let stop = CancellationToken::new();
    let running = tokio::spawn(JobRunner::new(runtime).job(job).run(stop.clone()));
    let operator = DB::store_of(world, &roles.operator).await;
    let jobs = Jobs::new(&operator);
    eventually(async || jobs.list(1).await.unwrap().pop()).await;
    let run_id = jobs.run_now("a").await.unwrap();
    eventually(async || jobs.run(run_id).await.unwrap().unwrap().finished_at).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    assert_eq!(jobs.runs("a", 9).await.unwrap().len(), 1);
    forbidden(operator.pool(), &format!("DELETE FROM {}", DB::table_of("job_runs"))).await;
    operator.pool().close().await;
}

async fn the_documented_grants_are_enough_and_no_more<DB: Granted>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;

    let producer = DB::store_of(&world, &roles.producer).await;
    producer.check().await.unwrap();
    publish(&producer, 0..3).await;
    publish_in_sql(&producer).await;
    for sql in DB::PRODUCER {
        forbidden(producer.pool(), sql).await;
    }

    delay_and_cancel(&producer).await;
    let web = DB::store_of(&world, &roles.web).await;
    web.check().await.unwrap();
    for sql in DB::PRODUCER {
        forbidden(web.pool(), sql).await;
    }
    answer_requests(&web).await;
    let keys = ClientKeys::new(&web);
    let once = keys.call_once("orders.create", "a", async |_| Ok(Applied::new())).await.unwrap();
    assert!(matches!(once, Once::Applied(_)));

    let runtime = DB::store_of(&world, &roles.runtime).await;
    publish(&runtime, 3..5).await;
    delay_and_cancel(&runtime).await;
    delay(&runtime, 5).await;
    assert_eq!(Log::new(&runtime).move_due(10).await.unwrap().messages, 1);
    relay(&runtime, 5, true).await;
    let consumer = Consumer::new(runtime.clone(), ()).handler::<handle>();
    run_until(consumer, async || world.rows("inbox").await == 6).await;
    assert_eq!(world.rows("dead_letters").await, 1);
    assert_eq!(world.rows("attempts").await, 0);
    assert_eq!(runtime.inbox("tests.grants").purge(Duration::ZERO).await.unwrap(), 6);
    assert_eq!(runtime.published("orders.confirmed", 10).await.unwrap().len(), 5);
    for sql in DB::RUNTIME {
        forbidden(runtime.pool(), sql).await;
    }
    run_a_job(&world, &roles, &runtime).await;
    look(&world, &roles).await;
    operate(&world, &roles, &runtime).await;
    for (role, name) in roles.all() {
        let ops = Ops::new(world.owner());
        assert_eq!(ops.missing_rights(Some(name), role).await.unwrap(), Some(Vec::new()), "{role:?}");
        assert_eq!(ops.excess_rights(Some(name), &[role]).await.unwrap(), Some(Vec::new()), "{role:?}");
    }
    assert_eq!(Ops::new(&runtime).missing_rights(None, Role::Runtime).await.unwrap(), Some(Vec::new()));
    let missing =
        Ops::new(world.owner()).missing_rights(Some(&roles.producer), Role::Runtime).await.unwrap().unwrap();
    assert!(missing.contains(&format!("SELECT ON {}", DB::table_of("outbox"))), "{missing:?}");
    let redactor = DB::store_of(&world, &roles.redactor).await;
    redactor.check().await.unwrap();
    delay(&runtime, 2).await;
    // Published, waiting and rejected; what its handler published was rolled back.
    let intent = AuditIntent { operator: "ada", command: "keys redact", target: "2", reason: None };
    let entry = Ops::new(&redactor).begin_audit(&intent).await.unwrap();
    let redacted = Ops::new(&redactor).redact("2").await.unwrap();
    Ops::new(&redactor).end_audit(entry, 3).await.unwrap();
    assert_eq!((redacted.outbox, redacted.delayed, redacted.dead_letters), (1, 1, 1));
    assert_eq!(redactor.idempotency_keys().erase("", None).await.unwrap(), 2);
    for sql in DB::REDACTOR {
        forbidden(redactor.pool(), sql).await;
    }
    redactor.pool().close().await;
    for sql in DB::RUNTIME_REDACTS {
        forbidden(runtime.pool(), sql).await;
    }
    // Messages of the consumer's handler, and one that neither has settled. The relay reads up to the last
    // one, so that a tick is behind the consumer's place.
    publish(&runtime, 6..7).await;
    relay(&runtime, 6, false).await;
    let keeper = DB::store_of(&world, &roles.keeper).await;
    keeper.check().await.unwrap();
    assert_eq!(Log::new(&keeper).purge(Duration::ZERO).await.unwrap().messages, 6);
    let retention = Retention::new(Duration::ZERO).max_lag(Duration::ZERO, OnMaxLag::Detach);
    assert_eq!(Log::new(&keeper).purge(retention).await.unwrap().lagging, ["consumer:tests.grants", "relay"]);
    let intent =
        AuditIntent { operator: "ada", command: "destinations retire", target: "relay", reason: None };
    let entry = Ops::new(&keeper).begin_audit(&intent).await.unwrap();
    // The tool looks for the destination, and says how much is lost.
    assert_eq!(Ops::new(&keeper).readers().await.unwrap().len(), 2);
    assert!(Ops::new(&keeper).retire("relay").await.unwrap().had_cursor);
    Ops::new(&keeper).end_audit(entry, 1).await.unwrap();
    assert_eq!(
        (
            keeper.idempotency_keys().purge().await.unwrap(),
            keeper.idempotency_keys().purge_webhooks().await.unwrap()
        ),
        (2, 1)
    );
    let refused = Keeper::new(&runtime).purge().await.forbidden;
    assert_eq!(refused, DB::NOT_PURGED);
    assert_eq!(ClientKeys::new(&keeper).purge(Duration::ZERO, 10).await.unwrap(), 1);
    let report = Keeper::new(&keeper).keep_job_runs(Duration::ZERO).purge().await;
    assert!(report.forbidden.is_empty() && report.error.is_none(), "{report:?}");
    assert_eq!(report.rows["job_runs"], 1);
    let audit = format!("SELECT count(*) FROM {}", DB::table_of("idempotency_audit"));
    let mut conn = keeper.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(audit)).execute(&mut *conn).await.unwrap();
    drop(conn);
    for sql in DB::KEEPER {
        forbidden(keeper.pool(), sql).await;
    }
    keeper.pool().close().await;
    producer.pool().close().await;
    web.pool().close().await;
    runtime.pool().close().await;
    DB::drop(roles, &world).await;
}

cases_on! {
    [postgres: Postgres, mysql: MySql],
    [
        a_store_of_tests_has_the_rights_of_the_page_and_no_more,
        the_documented_grants_are_enough_and_no_more,
        what_the_page_does_not_grant_is_refused,
        who_blanks_messages_cannot_forge_one,
        who_blanks_responses_cannot_forge_one,
        no_session_turns_the_rules_of_columns_off,
        no_role_writes_a_time_that_no_program_reads,
        the_audit_knows_which_role_acted,
        an_entry_of_the_audit_is_ended_once_and_by_its_own_role,
        each_way_to_a_right_is_found,
        what_a_role_cannot_see_is_named,
    ]
}
