//! A dispatcher of side effects with crash points, on the database that the environment names.
use integration_tests::vendors::{http_vendor, profile};
use std::{env, error::Error, time::Duration};
use twinbox::{
    CancellationToken, Dialect, Store,
    effects::{Dispatcher, VendorOptions},
};

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    with_store!(dispatch)
}

async fn dispatch<DB: Dialect>(store: Store<DB>) -> Result<(), Box<dyn Error>> {
    let profile = profile(&env::var("PROFILE")?).ok_or("no such profile")?;
    let vendor = http_vendor(&env::var("VENDOR_URL")?, profile.clone())?;
    // No lease of a dispatcher that died ends within a test, unless the test ends it.
    let options = VendorOptions::new().timeout(Duration::from_secs(300));
    let dispatcher = Dispatcher::new(&store).vendor_with(vendor, options).poll(Duration::from_millis(20));
    Ok(dispatcher.run(CancellationToken::new()).await?)
}
