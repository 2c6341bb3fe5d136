//! Requests that are encrypted: who may change rows sends them nowhere else, and puts them nowhere else.
use crate::support::{
    cases::cases,
    codec::store_with,
    effects::{Dispatching, QUICK, WELCOME, found, mail, plan, reaches},
    stores::{TestDb, World, sql},
    wait::eventually,
};
use integration_tests::vendors::http_vendor;
use sqlx::AssertSqlSafe;
use twinbox::{
    DecodeError, ErrorKind, Store, StoreOptions,
    codec::AesGcm,
    effects::{Dispatcher, EffectState, Effects, HttpVendor, ReqwestService, VendorOptions, profiles},
    ops::{
        Ops,
        effects::{EffectBody, EffectFilter, EffectId, EffectInfo},
    },
};
use twinbox_testkit::vendor::FakeVendor;

fn options() -> StoreOptions {
    StoreOptions::new().codec(AesGcm::new("2026-11", &[7; 32]).unwrap())
}

fn encrypted<DB: TestDb>(world: &World<DB>) -> Store<DB> {
    store_with(world, options())
}

/// Waits until so many effects have failed, and returns them.
async fn failed<DB: TestDb>(world: &World<DB>, count: usize) -> Vec<EffectInfo> {
    let filter = EffectFilter { state: Some("failed".to_owned()), ..EffectFilter::default() };
    eventually(async || {
        let found = Ops::new(world).effects(&filter, None, 100).await.unwrap().effects;
        (found.len() == count).then_some(found)
    })
    .await
}

/// The dispatcher has the key, and whoever changes the row has not.
async fn a_request_goes_where_it_was_planned_to_or_nowhere<DB: TestDb>() {
    let (mails, chat) = (FakeVendor::start().await.unwrap(), FakeVendor::start().await.unwrap());
    let world = World::<DB>::new().await;
    let (store, table) = (encrypted(&world), DB::table_of("side_effects"));
    let changes = [
        ("vendor", "chat"),
        ("method", "PUT"),
        ("target", "/services/of-the-attacker"),
        ("content_type", "text/html"),
        ("headers", r#"{"x-copy-to":"mallory@example.org"}"#),
        ("key", "another"),
        ("kind", "email.other"),
    ];
    for (column, value) in changes {
        let source = plan(&store, mail("the IBAN")).await;
        let position = found(&store, source).await.position;
        let set = sql::<DB>(&format!("UPDATE {table} SET {column} = $1 WHERE position = $2"));
        let mut conn = world.pool().acquire().await.unwrap();
        sqlx::query::<DB>(set).bind(value.to_owned()).bind(position).execute(&mut *conn).await.unwrap();
        drop(conn);
        let error = Effects::new(&store).get(position).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Codec, "{column}");
    }
    let untouched = plan(&store, mail("untouched")).await;
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy()).unwrap();
    let other = HttpVendor::new("chat", profiles::RESEND, chat.url(), service).unwrap();
    let dispatcher = Dispatcher::new(&store)
        .vendor_with(
            http_vendor(&mails.url(), profiles::RESEND).unwrap(),
            VendorOptions::new().retries(QUICK),
        )
        .vendor_with(other, VendorOptions::new().retries(QUICK));
    let dispatching = Dispatching::start(dispatcher);
    reaches(&store, untouched, EffectState::Confirmed).await;
    for effect in failed(&world, changes.len()).await {
        assert_eq!((effect.error_code.as_deref(), effect.attempts), (Some("VALIDATION.rejected"), 0));
        let text = effect.last_error.unwrap();
        assert!(
            text.contains("could not decode the request of a side effect")
                && text.contains("the payload or what it is bound to was changed"),
            "{text}"
        );
    }
    dispatching.stop().await;
    assert_eq!(mails.acts(), [br#"{"text":"untouched"}"#]);
    assert!(chat.calls().is_empty());
}

/// In a row of the log that says the same as far as it can, a consumer would read the clear text.
async fn a_request_is_no_message<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let store = encrypted(&world);
    let effect = found(&store, plan(&store, mail("the IBAN")).await).await;
    assert_eq!(effect.request, mail("the IBAN"));
    let copy = format!(
        "INSERT INTO {} (id, type, content_type, headers, payload)
        SELECT '{}', '{WELCOME}', 'application/octet-stream', codec_headers, request
        FROM {}",
        DB::table_of("outbox"),
        effect.id,
        DB::table_of("side_effects"),
    );
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(copy)).execute(&mut *conn).await.unwrap();
    drop(conn);
    let [message] = &store.published(WELCOME, 9).await.unwrap()[..] else { panic!("one") };
    assert_eq!(message.header("twinbox-codec"), Some("aes-256-gcm"));
    let error = store.decode(message).unwrap_err();
    assert!(matches!(error, DecodeError::Codec { .. }), "{error:?}");
}

/// What an operator sees stays what there is.
async fn a_plain_request_is_not_sent_where_the_codec_is_required<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let store = store_with(&world, options().require_codec());
    let forged = plan(&world, mail("forged")).await;
    let good = plan(&store, mail("good")).await;
    let refused = Effects::new(&store).find(forged, WELCOME).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Codec);
    let dispatching = Dispatching::to(&store, &vendor, profiles::RESEND);
    reaches(&store, good, EffectState::Confirmed).await;
    let effect = failed(&world, 1).await.remove(0);
    dispatching.stop().await;
    assert_eq!((effect.source_id, effect.error_code.as_deref()), (forged, Some("VALIDATION.rejected")));
    assert!(effect.last_error.unwrap().contains("`StoreOptions::require_codec`"));
    assert_eq!(vendor.acts(), [br#"{"text":"good"}"#]);
    let bodies = async |source| {
        let position = Ops::new(&store).effects_of(source).await.unwrap()[0].position;
        Ops::new(&store).effect(EffectId::Position(position)).await.unwrap().body
    };
    assert_eq!(bodies(forged).await, EffectBody::Plain(br#"{"text":"forged"}"#.to_vec()));
    assert_eq!(bodies(good).await, EffectBody::Plain(br#"{"text":"good"}"#.to_vec()));
}

cases! {
    all: [
        a_request_goes_where_it_was_planned_to_or_nowhere,
        a_request_is_no_message,
        a_plain_request_is_not_sent_where_the_codec_is_required,
    ]
}
