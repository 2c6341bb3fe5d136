//! Idempotency keys for vendors, which forget them sooner than a request is forgotten.
use crate::support::{
    cases::cases,
    operations::{LONG, SHORT, asked, end, expire, key, known, lease, open_lease as open, policy, runs_out},
    refunds::{Got, post, send},
    stores::{TestDb, World, effect},
};
use axum::{Router, extract::State, http::StatusCode, routing};
use sqlx::AssertSqlSafe;
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox::{
    ErrorKind,
    http::{Caller, IdemLease, Idempotency, ServerError},
    operation::{OperationLease, OperationStart},
};

/// A vendor remembers for an hour longer.
const WINDOW: Duration = Duration::from_secs(23 * 3600);

async fn token<DB: TestDb>(lease: &OperationLease<DB>, kind: &str, generation: u32) -> Option<String> {
    lease.token_within(kind, generation, WINDOW).await.unwrap()
}

/// Every token was given out a day and an hour ago.
async fn a_day_passes<DB: TestDb>(world: &World<DB>) {
    let table = DB::table_of("idempotency_keys");
    let mut conn = world.pool().acquire().await.unwrap();
    let given = format!("SELECT tokens FROM {table} WHERE tokens IS NOT NULL");
    let given: String = sqlx::query_scalar(AssertSqlSafe(given)).fetch_one(&mut *conn).await.unwrap();
    let mut given: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&given).unwrap();
    for at in given.values_mut() {
        *at = (at.as_i64().unwrap() - 25 * 3600 * 1_000_000).into();
    }
    let given = serde_json::to_string(&given).unwrap();
    let passes = format!("UPDATE {table} SET tokens = '{given}'");
    sqlx::raw_sql(AssertSqlSafe(passes)).execute(&mut *conn).await.unwrap();
}

async fn a_token_that_the_vendor_may_have_forgotten_is_not_given_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let charge = token(&first, "charge", 0).await.unwrap();
    assert_eq!(token(&first, "charge", 0).await.as_deref(), Some(&*charge));
    first.release().await.unwrap();
    let second = open(&world, &key("a"), "1").await;
    assert_eq!(token(&second, "charge", 0).await.as_deref(), Some(&*charge), "each try has the same");
    a_day_passes(&world).await;
    second.release().await.unwrap();
    let third = open(&world, &key("a"), "1").await;
    assert_eq!(token(&third, "charge", 0).await, None);
    // Whoever has asked the vendor goes on with another one, and so does another call.
    let others = [token(&third, "charge", 1).await.unwrap(), token(&third, "receipt", 0).await.unwrap()];
    assert!(others[0] != others[1] && !others.contains(&charge));
    assert_eq!(token(&third, "charge", 1).await.as_deref(), Some(&*others[0]));
    assert_eq!(token(&third, "charge", 0).await, None);
    let for_ever = third.token_within("charge", 0, Duration::MAX).await.unwrap();
    assert_eq!(for_ever, Some(charge));
    end(&third, 1).await;
}

/// What was made has the same id, so that a primary key guards it; the vendor is asked for something new.
async fn a_key_that_is_used_again_after_it_expired_has_another_token<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let old = token(&first, "charge", 0).await;
    end(&first, 1).await;
    expire(&world).await;
    let second = open(&world, &key("a"), "1").await;
    assert_eq!(second.attempt(), 1);
    let new = token(&second, "charge", 0).await;
    assert!(new.is_some() && new != old);
    end(&second, 2).await;
    assert_ne!(
        key("a").domain_id("shop"),
        key("a").domain_id("billing"),
        "another service is another vendor's caller"
    );
}

async fn a_key_whose_vendor_may_have_been_called_is_no_other_requests<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let charge = token(&first, "charge", 0).await;
    first.forget().await.unwrap();
    assert!(matches!(lease(&world, &key("a"), "2").await, OperationStart::Mismatch));
    let second = open(&world, &key("a"), "1").await;
    assert_eq!((second.attempt(), second.failures()), (2, 0));
    assert_eq!(token(&second, "charge", 0).await, charge);
}

async fn who_has_lost_its_key_calls_nobody<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let slow = open(&world, &key("a"), "1").await;
    token(&slow, "charge", 0).await.unwrap();
    runs_out(&world).await;
    let quick = open(&world, &key("a"), "1").await;
    for kind in ["charge", "receipt"] {
        let lost = slow.token_within(kind, 0, WINDOW).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::LeaseLost);
    }
    end(&quick, 1).await;
    known(lease(&world, &key("a"), "1").await);
}

/// Bounds, and no token beside the transaction that ends it.
async fn tokens_are_bounded<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let long = first.token_within(&"k".repeat(256), 0, WINDOW).await.unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Configuration);
    let mut given = 0;
    let full = loop {
        match first.token_within(&"k".repeat(255), given, WINDOW).await {
            Ok(_) => given += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::Configuration);
    assert!((50..100).contains(&given), "{given}");
    let operation = first.begin().await.unwrap();
    assert_eq!(first.token_within("a", 0, WINDOW).await.unwrap_err().kind(), ErrorKind::Conflict);
    operation.abandon().await;
}

#[derive(Default)]
struct Vendor {
    charges: Mutex<Vec<String>>,
    remembered: Mutex<HashSet<String>>,
    /// What becomes of the caller after it has called.
    dies: AtomicBool,
}

impl Vendor {
    fn charge(&self, token: &str) -> String {
        if self.remembered.lock().unwrap().insert(token.to_owned()) {
            self.charges.lock().unwrap().push(token.to_owned());
        }
        "ch_1".to_owned()
    }

    fn charged(&self) -> Option<String> {
        self.charges.lock().unwrap().first().map(|_| "ch_1".to_owned())
    }
}

async fn pay<DB: TestDb>(
    State(vendor): State<Arc<Vendor>>,
    mut lease: IdemLease<DB>,
) -> Result<StatusCode, ServerError> {
    if lease.recovery_point().is_none() {
        let charge = match lease.token_within("charge", 0, WINDOW).await? {
            Some(token) => vendor.charge(&token),
            None => vendor.charged().ok_or("nobody knows")?,
        };
        if vendor.dies.load(SeqCst) {
            return Err("it dies before it has saved that".into());
        }
        lease.save(&charge).await?;
    }
    let mut idem = lease.begin().await?;
    effect::<DB>(&mut idem.tx(), 1).await?;
    Ok(StatusCode::CREATED)
}

/// Keys are remembered for a week, a vendor's for a day.
async fn a_request_that_is_tried_again_a_day_later_charges_once<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let vendor = Arc::new(Vendor { dies: true.into(), ..Vendor::default() });
    let layer = Idempotency::new((*world).clone(), Caller::single).money().lease(LONG);
    let app = Router::new().route("/pay", routing::post(pay::<DB>).layer(layer)).with_state(vendor.clone());
    let pay = async || -> Got { send(&app, post("/pay", "a").body("{}".into()).unwrap()).await };
    assert_eq!(pay().await.status.as_u16(), 500);
    a_day_passes(&world).await;
    vendor.remembered.lock().unwrap().clear();
    vendor.dies.store(false, SeqCst);
    assert_eq!(pay().await.says(), Some("stored"));
    let charges = vendor.charges.lock().unwrap().len();
    assert_eq!((charges, world.effects().await), (1, vec![1]));
    let again = world.idempotency_keys().lease(&key("a"), &asked("1"), &policy(SHORT), LONG).await.unwrap();
    assert!(matches!(again, OperationStart::Open(_)), "another scope is another key");
}

cases! {
    all: [
        a_token_that_the_vendor_may_have_forgotten_is_not_given_again,
        a_key_that_is_used_again_after_it_expired_has_another_token,
        a_key_whose_vendor_may_have_been_called_is_no_other_requests,
        who_has_lost_its_key_calls_nobody,
        tokens_are_bounded,
        a_request_that_is_tried_again_a_day_later_charges_once,
    ]
}
