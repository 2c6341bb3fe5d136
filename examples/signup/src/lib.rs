//! A user signs up and gets one welcome mail, although the provider of mails drops connections.
use serde::{Deserialize, Serialize};
use sqlx::Sqlite;
use std::{error::Error, time::Duration};
use twinbox::{
    CancellationToken, Event, RetryPolicy, Store,
    effects::{
        Dispatcher, EffectRequest, Effects, HttpVendor, ReqwestService, SideEffect, VendorOptions, profiles,
    },
    sqlite,
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

/// The file of the database.
const FILE: &str = "signup.db";
/// The answers of the provider: it drops a connection before and after it has sent the mail, fails, and says
/// nothing.
const ANSWERS: [VendorAnswer; 5] = [
    VendorAnswer::Cut,
    VendorAnswer::ActThenCut,
    VendorAnswer::Status(503),
    VendorAnswer::Stall,
    VendorAnswer::Act,
];
/// The kind of the effect: a user has one of it.
const WELCOME: &str = "email.welcome";
/// Delays of a demonstration. The default ones are 500 ms, 2 s, 5 s and 30 s.
const RETRIES: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(100); 9]);
/// How long the mail may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The fact that a user has signed up.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "users.signed_up", version = 1, key = user_id)]
pub struct SignedUp {
    /// The user.
    pub user_id: Uuid,
    /// The address of the user.
    pub email: String,
}

/// Signs a user up, and waits for the mail.
///
/// # Errors
/// The database or the provider failed, or the mail was not sent once.
pub async fn run() -> Result<(), Box<dyn Error>> {
    let store = Store::new(sqlite::open(FILE).await?, "accounts")?;
    store.migrate().await?;
    create_tables(&store).await?;
    let provider = FakeVendor::start().await?;
    provider.answer_next(ANSWERS);

    let user_id = sign_up(&store, "ada@example.org").await?;
    println!("signed up: user {user_id}, its event and its welcome mail in one transaction");
    let mail = send_mails(&store, &provider.url(), user_id).await?;
    store.pool().close().await;

    for (n, call) in provider.calls().iter().enumerate() {
        println!("  try {}, key {}: {:?}", n + 1, call.key.as_deref().unwrap_or("none"), call.answer);
    }
    let (tries, sent) = (provider.calls().len(), provider.acts().len());
    println!("the mail is {}: tried {tries} times, sent {sent} time", mail.state);
    if sent == 1 { Ok(()) } else { Err(format!("{sent} mails were sent").into()) }
}

/// Creates the table of users.
///
/// # Errors
/// The database refused.
pub async fn create_tables(store: &Store<Sqlite>) -> Result<(), Box<dyn Error>> {
    let table = "CREATE TABLE IF NOT EXISTS users (id BLOB PRIMARY KEY, email TEXT NOT NULL) STRICT";
    sqlx::raw_sql(table).execute(store.pool()).await?;
    Ok(())
}

/// Writes the user, the event and the welcome mail in one transaction: all of them, or none.
///
/// # Errors
/// The database refused, and nothing was written.
pub async fn sign_up(store: &Store<Sqlite>, email: &str) -> Result<Uuid, Box<dyn Error>> {
    let user_id = Uuid::now_v7();
    let mut tx = store.begin().await?;
    sqlx::query("INSERT INTO users (id, email) VALUES (?, ?)")
        .bind(user_id)
        .bind(email)
        .execute(&mut *tx)
        .await?;
    store.outbox().publish(&mut tx, &SignedUp { user_id, email: email.to_owned() }).await?;
    let mail = serde_json::json!({ "to": email, "subject": "Welcome" });
    let request = EffectRequest::json("mails", &mail)?.target("/emails");
    Effects::new(store).plan(&mut tx, user_id, WELCOME, request).await?;
    tx.commit().await?;
    Ok(user_id)
}

/// Sends mails until the welcome mail of the user has ended, and returns it.
///
/// A service lets its dispatcher run for as long as it lives.
///
/// # Errors
/// The dispatcher could not start, or the mail took longer than 30 s.
pub async fn send_mails(
    store: &Store<Sqlite>,
    provider_url: &str,
    user_id: Uuid,
) -> Result<SideEffect, Box<dyn Error>> {
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy())?;
    let provider = HttpVendor::new("mails", profiles::RESEND, provider_url, service)?
        .header("authorization", "Bearer a-secret-that-is-in-no-database")?;
    let options = VendorOptions::new().timeout(Duration::from_secs(1)).retries(RETRIES);
    let stop = CancellationToken::new();
    let dispatcher = Dispatcher::new(store).vendor_with(provider, options);
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    let ended = tokio::time::timeout(PATIENCE, ended(store, user_id)).await;
    stop.cancel();
    running.await??;
    ended?
}

async fn ended(store: &Store<Sqlite>, user_id: Uuid) -> Result<SideEffect, Box<dyn Error>> {
    loop {
        let mail = Effects::new(store).find(user_id, WELCOME).await?.ok_or("the mail is not planned")?;
        if mail.next_attempt_at.is_none() {
            return Ok(mail);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
