//! A web server with crash points: it refunds with keys, on the database that the environment names.
use axum::Router;
use integration_tests::refunds::{Shop, hooks, leased_router, ping, router};
use std::{error::Error, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use twinbox::{
    Dialect, Store,
    http::{Caller, Idempotency},
};

/// Nobody loses it for being slow. A test ends that of a process that died.
const LEASE: Duration = Duration::from_secs(300);
/// A repeated request waits for as long as its `X-Request-Timeout` says.
const WAIT: Duration = Duration::from_secs(300);

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    with_store!(serve)
}

async fn serve<DB: Dialect>(store: Store<DB>) -> Result<(), Box<dyn Error>> {
    let layer = Idempotency::new(store.clone(), Caller::single).wait(WAIT);
    let (shop, leased) = (Arc::new(Shop::default()), layer.clone().scope("leased").lease(LEASE));
    let app = Router::new()
        .nest("/leased", leased_router(leased, shop.clone()))
        .merge(router(layer, shop))
        .merge(hooks(store.clone(), Duration::from_secs(60)))
        .merge(ping(store));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
