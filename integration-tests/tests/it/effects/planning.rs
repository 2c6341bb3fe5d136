//! Planning side effects: in every kind of transaction, once.
use crate::support::{
    cases::cases,
    codec::ciphered,
    databases::{MySql, Postgres},
    effects::{Dispatching, WELCOME, all, found, mail, plan, plan_at, reaches},
    operations::{answer, key, open},
    stores::{Placed, TestDb, World, sql},
};
use integration_tests::vendors::VENDOR;
use sqlx::{AssertSqlSafe, Sqlite};
use twinbox::{
    BatchTx, Delivery, DeliveryOutcome, Dialect, ErrorKind, HandlerResult, Message, Tx,
    consumer::EventHandler,
    effects::{EffectRequest, EffectState, Effects, Planned, SideEffect, effect_id, profiles},
    event_handler,
    message::header,
};
use twinbox_testkit::{Harness, vendor::FakeVendor};
use uuid::Uuid;

/// R69
async fn an_effect_is_sent_if_and_only_if_its_transaction_commits<DB: TestDb>() {
    let (world, vendor, dispatching) = all::<DB>().await;
    let effects = Effects::new(&world);
    let (undone, source) = (Uuid::now_v7(), Uuid::now_v7());
    let mut tx = world.begin().await.unwrap();
    effects.plan(&mut tx, undone, WELCOME, mail("undone")).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = world.begin().await.unwrap();
    let planned = effects.plan(&mut tx, source, WELCOME, mail("hello")).await.unwrap();
    assert_eq!(planned, Planned::New(effect_id(source, WELCOME)));
    tx.commit().await.unwrap();
    let effect = reaches(&world, source, EffectState::Confirmed).await;
    dispatching.stop().await;
    let [call] = &vendor.calls()[..] else { panic!("one call: {:?}", vendor.calls()) };
    assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/emails"));
    assert_eq!(call.body, br#"{"text":"hello"}"#);
    assert_eq!(call.key, effect.idempotency_key);
    assert_eq!((effect.attempts, effect.failures, effect.http_code), (1, 0, Some(200)));
    assert_eq!((effect.provider_ref.as_deref(), effect.error_code.as_deref()), (Some("act_0"), None));
    // The statement reads the clock for each of both.
    assert!(effect.first_fired_at.is_some() && effect.ended_at >= effect.first_fired_at.max(effect.fired_at));
    assert!(effects.find(undone, WELCOME).await.unwrap().is_none());
    assert_eq!(effects.get_by_id(effect.id).await.unwrap().unwrap().position, effect.position);
    assert_eq!(effects.get(effect.position).await.unwrap().unwrap().id, effect.id);
}

/// R69, D27, t26: a template that changes with a deployment does not change a planned effect.
async fn a_second_plan_changes_nothing_and_fails_if_its_request_is_another<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (effects, source) = (Effects::new(&world), plan(&world, mail("first")).await);
    let id = effect_id(source, WELCOME);
    let mut tx = world.begin().await.unwrap();
    let again = effects.plan(&mut tx, source, WELCOME, mail("first")).await.unwrap();
    assert_eq!(again, Planned::Existing { id, has_same_request: true });
    for other in [mail("second"), mail("first").target("/other"), mail("first").header("x-a", "b")] {
        let error = effects.plan(&mut tx, source, WELCOME, other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let says = "(\"email.welcome\") was planned with another request";
        assert!(error.to_string().contains(says), "{error}");
    }
    // The transaction goes on.
    let other = effects.plan(&mut tx, source, "email.welcome:ada", mail("third")).await.unwrap();
    assert!(matches!(other, Planned::New(other) if other != id));
    tx.commit().await.unwrap();
    assert_eq!(world.rows("side_effects").await, 2);
    assert_eq!(found(&world, source).await.request, mail("first"));
}

/// An object of JSON keeps no order.
async fn headers_in_another_order_are_the_same_request<DB: TestDb>() {
    let (world, source) = (World::<DB>::new().await, Uuid::now_v7());
    for names in [["x-b", "x-a"], ["x-a", "x-b"]] {
        plan_at(&world, source, mail("1").header(names[0], "1").header(names[1], "1")).await;
    }
    assert_eq!(world.rows("side_effects").await, 1);
}

async fn what_could_never_be_sent_is_not_planned<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let request = mail("x").header("Authorization", "Bearer secret");
    let error = Effects::new(&world).plan(&mut tx, Uuid::nil(), WELCOME, request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("the vendor adds credentials"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    let largest = EffectRequest::new(VENDOR, vec![b'x'; twinbox::limits::PAYLOAD_BYTES_MAX]);
    let largest = largest.target("/".repeat(2048)).key("é".repeat(127));
    Effects::new(&world).plan(&mut tx, Uuid::nil(), &"k".repeat(255), largest).await.unwrap();
    tx.commit().await.unwrap();
}

#[event_handler(consumer = "tests.welcome")]
async fn welcome<DB: Dialect>(
    effects: &Effects<DB>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    let source = tx.message_id();
    effects.plan(tx, source, WELCOME, mail(&order.n.to_string())).await?;
    if order.n < 0 {
        return Err("it fails after it has planned".into());
    }
    Ok(())
}

#[event_handler(consumer = "tests.welcome", batch = 10)]
async fn welcome_all<DB: Dialect>(
    effects: &Effects<DB>,
    tx: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    for order in &orders {
        let source = order.message().message_id();
        effects.plan(tx, source, WELCOME, mail(&order.n.to_string())).await?;
    }
    Ok(())
}

async fn planned_by<DB: TestDb>(world: &World<DB>, message: &Message) -> Option<SideEffect> {
    Effects::new(world).find(message.message_id(), WELCOME).await.unwrap()
}

/// R10, R71
async fn a_handler_plans_with_its_transaction<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let harness = Harness::new(&world, Effects::new(&world));
    let message = |n| Delivery::of(Placed { n }).unwrap().message().clone();
    let good = Message { correlation_id: Some("signup-7".into()), ..message(1) };
    for expected in [DeliveryOutcome::Handled, DeliveryOutcome::Duplicate] {
        assert_eq!(harness.deliver::<welcome>(&good).await, expected);
    }
    let effect = planned_by(&world, &good).await.unwrap();
    assert_eq!(effect.correlation_id.as_deref(), Some("signup-7"));
    assert_eq!(effect.source_id, good.message_id().as_uuid());
    let bad = message(-1);
    assert!(matches!(harness.deliver::<welcome>(&bad).await, DeliveryOutcome::Retried { .. }));
    assert!(planned_by(&world, &bad).await.is_none());
}

/// After a deployment with another template a handler fails, and a replay of what it has handled does not.
async fn a_replay_plans_another_request_without_an_error<DB: TestDb>() {
    replay_with_another_request::<DB, welcome>().await;
    replay_with_another_request::<DB, welcome_all>().await;
}

async fn replay_with_another_request<DB: TestDb, H: EventHandler<DB, Effects<DB>>>() {
    let world = World::<DB>::new().await;
    let harness = Harness::new(&world, Effects::new(&world));
    let message = Delivery::of(Placed { n: 1 }).unwrap().message().clone();
    plan_at(&world, message.message_id().as_uuid(), mail("earlier")).await;
    let outcome = harness.deliver::<H>(&message).await;
    let DeliveryOutcome::Retried { counted: true, error, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("was planned with another request"), "{error}");
    let replay = Uuid::now_v7().to_string();
    let marks = [(header::REPLAY, &*replay), (header::REPLAY_FOR, "tests.welcome")];
    let headers = marks.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let replayed = Message { headers, ..message.clone() };
    assert_eq!(harness.deliver::<H>(&replayed).await, DeliveryOutcome::Handled);
    assert_eq!(planned_by(&world, &message).await.unwrap().request, mail("earlier"));
}

/// R71: the source is the operation's row, which is derived from the key of the request.
async fn a_request_plans_with_its_key<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut operation = open(&world, &key("a"), "1").await;
    let source = operation.tx().message_id();
    Effects::new(&world).plan(&mut operation.tx(), source, WELCOME, mail("1")).await.unwrap();
    operation.commit(&answer("1")).await.unwrap();
    assert_eq!(source.as_uuid(), key("a").domain_id(world.service()));
    let effect = found(&world, source.as_uuid()).await;
    assert_eq!(effect.correlation_id, Some(source.to_string()));
}

/// The application's own `pool.begin()`.
async fn a_transaction_of_sqlx_plans_too<DB: TestDb>() {
    let (world, source) = (World::<DB>::new().await, Uuid::now_v7());
    let mut tx = world.pool().begin_with(DB::BEGIN).await.unwrap();
    Effects::new(&world).plan(&mut tx, source, WELCOME, mail("1")).await.unwrap();
    assert!(Effects::new(&world).find(source, WELCOME).await.unwrap().is_none());
    tx.commit().await.unwrap();
    assert_eq!(found(&world, source).await.state, EffectState::Pending);
}

/// A program in another language plans it.
trait InSql: TestDb {
    /// Returns SQL that plans an effect.
    fn plan(source: Uuid, request: &str) -> String;
}

#[cfg(feature = "postgres")]
impl InSql for Postgres {
    fn plan(source: Uuid, request: &str) -> String {
        format!(
            "SELECT twinbox.plan_effect(
                '{source}', '{WELCOME}', '{VENDOR}', '{request}', target => '/emails')"
        )
    }
}

#[cfg(feature = "mysql")]
impl InSql for MySql {
    fn plan(source: Uuid, request: &str) -> String {
        format!(
            "INSERT INTO twinbox_side_effects (source_id, kind, vendor, request, target)
            VALUES (x'{}', '{WELCOME}', '{VENDOR}', x'{}', '/emails')
            ON DUPLICATE KEY UPDATE position = position",
            source.simple(),
            request.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()
        )
    }
}

impl InSql for Sqlite {
    fn plan(source: Uuid, request: &str) -> String {
        format!(
            "INSERT INTO twinbox_side_effects (source_id, kind, vendor, request, target)
            VALUES (x'{}', '{WELCOME}', '{VENDOR}', CAST('{request}' AS BLOB), '/emails')
            ON CONFLICT DO NOTHING",
            source.simple()
        )
    }
}

async fn an_effect_planned_by_plain_sql_is_sent_once<DB: InSql>() {
    let (world, vendor, dispatching) = all::<DB>().await;
    let source = Uuid::now_v7();
    for _ in 0..2 {
        let sql = AssertSqlSafe(DB::plan(source, r#"{"text":"\n \\ é"}"#));
        sqlx::raw_sql(sql).execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
    }
    let effect = reaches(&world, source, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!(vendor.acts(), [r#"{"text":"\n \\ é"}"#.as_bytes()]);
    assert_eq!(vendor.calls()[0].path, "/emails");
    let by_id = Effects::new(&world).get_by_id(effect_id(source, WELCOME)).await.unwrap().unwrap();
    assert_eq!((by_id.position, by_id.attempts), (effect.position, 1));
}

#[cfg(feature = "postgres")]
async fn sql_that_plans_another_request_is_refused() {
    let (world, source) = (World::<Postgres>::new().await, Uuid::now_v7());
    let plan = async |request: &str| {
        let sql = AssertSqlSafe(Postgres::plan(source, request));
        sqlx::query_scalar::<_, bool>(sql).fetch_one(world.pool()).await
    };
    assert!(plan("{}").await.unwrap());
    assert!(!plan("{}").await.unwrap());
    let refused = plan("[]").await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("TB005"), "{refused}");
    assert_eq!(world.rows("side_effects").await, 1);
}

/// A row that no producer of ours would write stops no other effect.
async fn a_row_that_cannot_be_sent_fails_alone<DB: InSql>() {
    let (world, vendor, dispatching) = all::<DB>().await;
    let table = DB::table_of("side_effects");
    let mut bad = Vec::new();
    for (column, value) in [
        ("target", "@evil.example"),
        ("method", "A B"),
        ("headers", r#"{"a": "b\nc"}"#),
        ("headers", r#"{"Authorization": "Bearer secret"}"#),
    ] {
        let source = Uuid::now_v7();
        let mut tx = world.begin().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(DB::plan(source, "{}"))).execute(&mut *tx).await.unwrap();
        let newest =
            format!("(SELECT newest FROM (SELECT max(position) AS newest FROM {table}) all_effects)");
        let set = sql::<DB>(&format!("UPDATE {table} SET {column} = $1 WHERE position = {newest}"));
        sqlx::query::<DB>(set).bind(value.to_owned()).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        bad.push(source);
    }
    let good = plan(&world, mail("good")).await;
    reaches(&world, good, EffectState::Confirmed).await;
    for source in bad {
        let effect = reaches(&world, source, EffectState::Failed).await;
        assert_eq!(effect.error_code.as_deref(), Some("VALIDATION.rejected"), "{effect:?}");
    }
    dispatching.stop().await;
    assert_eq!(vendor.acts().len(), 1);
}

async fn a_codec_keeps_requests_secret_in_the_database<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let store = ciphered(&world);
    let source = plan(&store, mail("secret")).await;
    let effects = Effects::new(&world);
    assert_eq!(effects.find(source, WELCOME).await.unwrap_err().kind(), ErrorKind::Codec);
    assert_eq!(found(&store, source).await.request, mail("secret"));
    let dispatching = Dispatching::to(&store, &vendor, profiles::RESEND);
    reaches(&store, source, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!(vendor.acts(), [br#"{"text":"secret"}"#]);
    // A dispatcher without the codec sends nothing, and says why.
    let other = plan(&store, mail("another")).await;
    let plain = plan(&world, mail("plain")).await;
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    reaches(&world, plain, EffectState::Confirmed).await;
    let effect = reaches(&store, other, EffectState::Failed).await;
    assert!(effect.last_error.as_deref().unwrap().contains("cipher"), "{effect:?}");
    dispatching.stop().await;
    assert_eq!(vendor.acts().len(), 2);
}

cases! {
    all: [
        a_codec_keeps_requests_secret_in_the_database,
        a_handler_plans_with_its_transaction,
        a_replay_plans_another_request_without_an_error,
        a_request_plans_with_its_key,
        a_second_plan_changes_nothing_and_fails_if_its_request_is_another,
        a_transaction_of_sqlx_plans_too,
        an_effect_is_sent_if_and_only_if_its_transaction_commits,
        an_effect_planned_by_plain_sql_is_sent_once,
        a_row_that_cannot_be_sent_fails_alone,
        headers_in_another_order_are_the_same_request,
        what_could_never_be_sent_is_not_planned,
    ]
    postgres: [sql_that_plans_another_request_is_refused]
}
