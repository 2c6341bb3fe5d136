//! Places orders and waits until each is picked and billed: `cargo run -p fulfilment -- 100`.
use fulfilment::{Aws, Failure, Places, run};
use std::env;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let orders = match env::args().nth(1) {
        Some(count) => count.parse().map_err(|_| format!("{count:?} is not a number of orders"))?,
        None => 100,
    };
    let place = |name, default: &str| env::var(name).unwrap_or(default.to_owned());
    let places = Places {
        database_url: place("DATABASE_URL", "postgres://localhost/fulfilment"),
        nats_url: place("NATS_URL", "nats://localhost:4222"),
        aws: Aws {
            region: place("AWS_REGION", "eu-west-1"),
            endpoint_url: env::var("AWS_ENDPOINT_URL").ok(),
        },
    };
    let report = run(orders, &places).await?;
    println!("{report}");
    if report.is_right() { Ok(()) } else { Err("an order was lost, or handled twice".into()) }
}
