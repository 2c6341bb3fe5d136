//! `cargo run -p signup`: one SQLite file and a provider of mails on loopback, which drops connections.
use std::error::Error;
use twinbox::{Store, sqlite};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};

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

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Store::new(sqlite::open(FILE).await?, "accounts")?;
    store.migrate().await?;
    signup::create_tables(&store).await?;
    let provider = FakeVendor::start().await?;
    provider.answer_next(ANSWERS);

    let user_id = signup::sign_up(&store, "ada@example.org").await?;
    println!("signed up: user {user_id}, its event and its welcome mail in one transaction");
    let mail = signup::send_mails(&store, &provider.url(), user_id).await?;
    store.pool().close().await;

    for (n, call) in provider.calls().iter().enumerate() {
        println!("  try {}, key {}: {:?}", n + 1, call.key.as_deref().unwrap_or("none"), call.answer);
    }
    let (tries, sent) = (provider.calls().len(), provider.acts().len());
    println!("the mail is {}: tried {tries} times, sent {sent} time", mail.state);
    if sent == 1 { Ok(()) } else { Err(format!("{sent} mails were sent").into()) }
}
