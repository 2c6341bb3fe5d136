//! Webhooks that go out: signed, to each endpoint alone, tried again. t28
use crate::support::{
    cases::cases,
    effects::{Dispatching, QUICK},
    stores::{TestDb, World},
    wait::eventually,
    webhooks::{now, secret},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox::{
    Dialect, RetryPolicy, Store,
    effects::{
        Dispatcher, EffectRequest, EffectState, Effects, SideEffect, VendorOptions,
        webhook::{
            Egress, Endpoint, Endpoints, GuardedService, SigningSecret, WEBHOOK_VENDOR, WebhookVendor,
        },
    },
    http::webhook::{Scheme, Signature, Verifier},
    seam::{BoxError, BoxFuture},
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer, VendorRequest};
use uuid::Uuid;

/// The endpoints of an application in memory.
#[derive(Clone, Default)]
struct Table {
    endpoints: Arc<Mutex<HashMap<String, Endpoint>>>,
    /// How many questions fail.
    failing: Arc<AtomicU32>,
}

impl Table {
    fn put(&self, id: &str, endpoint: Endpoint) {
        self.endpoints.lock().unwrap().insert(id.to_owned(), endpoint);
    }
}

impl Endpoints for Table {
    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Endpoint>, BoxError>> {
        let found = self.endpoints.lock().unwrap().get(id).cloned();
        let fails = self.failing.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        Box::pin(async move { if fails { Err("the table is away".into()) } else { Ok(found) } })
    }

    fn disable<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        let mut table = self.endpoints.lock().unwrap();
        let endpoint = table.remove(id).map(|endpoint| endpoint.disabled(true));
        endpoint.into_iter().for_each(|endpoint| _ = table.insert(id.to_owned(), endpoint));
        Box::pin(async { Ok(()) })
    }
}

fn signing(n: u8) -> SigningSecret {
    SigningSecret::from_bytes([n; 32]).unwrap()
}

/// A receiver on loopback, which the rules must allow.
fn loopback(receivers: &[&FakeVendor]) -> Egress {
    let port = |receiver: &FakeVendor| receiver.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let egress = Egress::new().allow_http().allow_network("127.0.0.0/8".parse().unwrap());
    receivers.iter().fold(egress, |egress, receiver| egress.allow_port(port(receiver)))
}

/// A dispatcher of webhooks.
fn sending<DB: Dialect>(
    store: &Store<DB>,
    table: &Table,
    egress: Egress,
    retries: RetryPolicy,
) -> Dispatching {
    let service = GuardedService::new(reqwest::Client::builder(), egress).unwrap();
    let options = VendorOptions::new().retries(retries);
    let vendor = WebhookVendor::new(table.clone(), service);
    Dispatching::start(Dispatcher::new(store).vendor_with(vendor, options))
}

async fn plan<DB: Dialect>(store: &Store<DB>, kind: &str) -> Uuid {
    let (source, payload) = (Uuid::now_v7(), serde_json::json!({"type": "order.paid"}));
    let mut tx = store.begin().await.unwrap();
    let request = EffectRequest::json(WEBHOOK_VENDOR, &payload).unwrap();
    Effects::new(store).plan(&mut tx, source, kind, request).await.unwrap();
    tx.commit().await.unwrap();
    source
}

async fn reaches<DB: Dialect>(store: &Store<DB>, source: Uuid, kind: &str, state: EffectState) -> SideEffect {
    let effects = Effects::new(store);
    eventually(async || effects.find(source, kind).await.unwrap().filter(|effect| effect.state == state))
        .await
}

fn verified(call: &VendorRequest, n: u8) -> Signature {
    let verifier = Verifier::new(Scheme::Standard, [secret(n)]);
    let values = |name: &str| {
        let headers = call.headers.iter().filter(|(header, _)| header == name);
        headers.map(|(_, value)| value.as_bytes()).collect()
    };
    verifier.verify(values, &call.body, now()).expect("the receiver accepts the signature")
}

/// Short delays, and more of them than a test waits for.
const PATIENT: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(1); 4]).max_attempts(1000);
const PAID: &str = "webhook.paid:ep_1";
const BUSY: &str = "webhook.paid:busy";

/// R46: the receiver verifies each try, with the old secret and with the new one.
async fn a_webhook_is_signed_for_each_try_under_one_id<DB: TestDb>() {
    let (world, receiver) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let table = Table::default();
    let endpoint = Endpoint::new(format!("{}/hooks", receiver.url()), signing(1)).second_secret(signing(2));
    table.put("ep_1", endpoint);
    receiver.answer_next([VendorAnswer::Status(500), VendorAnswer::Status(404), VendorAnswer::ActThenCut]);
    let source = plan(&world, PAID).await;
    let dispatching = sending(&world, &table, loopback(&[&receiver]), QUICK);
    let effect = reaches(&world, source, PAID, EffectState::Confirmed).await;
    dispatching.stop().await;
    let calls = receiver.calls();
    assert_eq!((calls.len(), effect.attempts), (4, 4));
    for call in &calls {
        assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/hooks"));
        assert_eq!(call.body, br#"{"type":"order.paid"}"#);
        for n in [1, 2] {
            assert_eq!(verified(call, n).id, Some(effect.id.to_string()));
        }
        assert!(call.headers.contains(&("content-type".into(), "application/json".into())));
    }
}

/// An endpoint that is gone is asked once. It, and one that the table does not know, get nothing more.
async fn an_endpoint_that_is_gone_gets_nothing_more<DB: TestDb>() {
    let (world, receiver) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let table = Table::default();
    table.put("ep_1", Endpoint::new(receiver.url(), signing(1)));
    receiver.answer_next([VendorAnswer::Status(410)]);
    let dispatching = sending(&world, &table, loopback(&[&receiver]), QUICK);
    let first = plan(&world, PAID).await;
    let effect = reaches(&world, first, PAID, EffectState::Failed).await;
    assert_eq!((effect.attempts, effect.http_code), (1, Some(410)));
    for (kind, says) in
        [(PAID, "disabled"), ("webhook.paid:ep_2", "no such endpoint"), ("webhook.paid", "with its endpoint")]
    {
        let source = plan(&world, kind).await;
        let effect = reaches(&world, source, kind, EffectState::Failed).await;
        assert!(effect.last_error.as_ref().is_some_and(|error| error.contains(says)), "{effect:?}");
    }
    dispatching.stop().await;
    assert_eq!(receiver.calls().len(), 1);
}

/// The application's own table may be away for a moment.
async fn an_endpoint_that_cannot_be_looked_up_is_asked_for_again<DB: TestDb>() {
    let (world, receiver) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let table = Table::default();
    table.put("ep_1", Endpoint::new(receiver.url(), signing(1)));
    table.failing.store(2, SeqCst);
    let dispatching = sending(&world, &table, loopback(&[&receiver]), QUICK);
    let source = plan(&world, PAID).await;
    let effect = reaches(&world, source, PAID, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!((effect.failures, receiver.calls().len()), (2, 1));
}

/// One endpoint fails for ever, and one asks for an hour: the others get their webhooks meanwhile.
async fn an_endpoint_in_trouble_delays_no_other<DB: TestDb>() {
    let (world, down) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let (busy, fine) = (FakeVendor::start().await.unwrap(), FakeVendor::start().await.unwrap());
    down.answer_with(|_| VendorAnswer::Cut);
    busy.answer_with(|_| VendorAnswer::RetryAfter(429, 3600));
    let table = Table::default();
    for (id, receiver) in [("down", &down), ("busy", &busy), ("fine", &fine)] {
        table.put(id, Endpoint::new(receiver.url(), signing(1)));
    }
    for _ in 0..10 {
        plan(&world, "webhook.paid:down").await;
        plan(&world, BUSY).await;
    }
    let dispatching = sending(&world, &table, loopback(&[&down, &busy, &fine]), PATIENT);
    down.wait_for_calls(5).await;
    // All ten were on their way when the first answer came. From the last answer on there is a pause.
    let table = DB::table_of("side_effects");
    let answered = format!("SELECT count(*) FROM {table} WHERE kind = '{BUSY}' AND http_code = 429");
    eventually(async || (world.number(&answered).await == 10).then_some(())).await;
    plan(&world, BUSY).await;
    for _ in 0..10 {
        let source = plan(&world, "webhook.paid:fine").await;
        reaches(&world, source, "webhook.paid:fine", EffectState::Confirmed).await;
    }
    dispatching.stop().await;
    assert_eq!((fine.calls().len(), busy.calls().len()), (10, 10));
}

/// An endpoint whose URL leads inside is never connected to, and its effect says why.
async fn an_endpoint_inside_the_network_gets_nothing<DB: TestDb>() {
    let (world, inside) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let table = Table::default();
    table.put("literal", Endpoint::new(inside.url(), signing(1)));
    let url = inside.url().replace("127.0.0.1", "localhost");
    table.put("named", Endpoint::new(url, signing(1)));
    let port = inside.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let dispatching = sending(&world, &table, Egress::new().allow_http().allow_port(port), QUICK);
    for (kind, sends) in [("webhook.paid:literal", 1), ("webhook.paid:named", 5)] {
        let source = plan(&world, kind).await;
        let effect = reaches(&world, source, kind, EffectState::Failed).await;
        assert_eq!(effect.attempts, sends, "{effect:?}");
        assert!(effect.last_error.as_ref().is_some_and(|error| error.contains("loopback")), "{effect:?}");
    }
    dispatching.stop().await;
    assert!(inside.calls().is_empty());
}

cases! {
    all: [
        a_webhook_is_signed_for_each_try_under_one_id,
        an_endpoint_that_is_gone_gets_nothing_more,
        an_endpoint_in_trouble_delays_no_other,
        an_endpoint_inside_the_network_gets_nothing,
        an_endpoint_that_cannot_be_looked_up_is_asked_for_again,
    ]
}
