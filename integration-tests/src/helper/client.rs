//! A client with crash points that charges once, with the key that the database keeps.
use integration_tests::vendors::{charge, client};
use std::{env, error::Error};
use twinbox::{
    Dialect, Store,
    effects::{ClientKeys, Once, Recovery, profiles},
};

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    with_store!(call)
}

/// Prints what became of the call.
async fn call<DB: Dialect>(store: Store<DB>) -> Result<(), Box<dyn Error>> {
    let (keys, url) = (ClientKeys::new(&store), env::var("VENDOR_URL")?);
    if env::var("WITHOUT_KEYS").is_ok() {
        let client = client(profiles::STRIPE_V1.recovery(Recovery::Operator))?;
        let called = keys
            .call_once("charges.create", "order-7", async |_| Ok(client.send(charge(&url)).await?.applied));
        println!(
            "{}",
            match called.await? {
                Once::Applied(_) => "applied",
                Once::Done(_) => "done",
                Once::Refused(_) => "refused",
                Once::InDoubt(..) => "in doubt",
            }
        );
        return Ok(());
    }
    let key = keys.begin("charges.create", "order-7").await?;
    let answer = client(profiles::STRIPE_V1)?.send(charge(&url).client_key(&key)).await?;
    keys.finish(&key, &answer.applied).await?;
    println!("applied");
    Ok(())
}
