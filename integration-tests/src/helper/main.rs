//! Every process that tests start, in one program, so that it is linked once. It is what its name says: tests
//! call it by links (`support::helper`).
/// Calls a function with the store at `DATABASE_URL`, whose scheme says which database it is.
macro_rules! with_store {
    ($call:ident) => {{
        let url = std::env::var("DATABASE_URL")?;
        match url.split(':').next() {
            Some("postgres" | "postgresql") => {
                $call(Store::new(sqlx::PgPool::connect(&url).await?, "test")?).await
            }
            Some("mysql") => $call(Store::new(sqlx::MySqlPool::connect(&url).await?, "test")?).await,
            _ => $call(Store::new(twinbox::sqlite::open(&url).await?, "test")?).await,
        }
    }};
}

mod client;
mod consumer;
mod dispatcher;
mod http;

use std::{env, error::Error, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let name = env::args().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(|name| name.to_str()).unwrap_or_default() {
        "twinbox" => twinbox_cli::main(),
        "twinbox-relay" => twinbox_relay::program::main(),
        name => other(name),
    }
}

#[tokio::main]
async fn other(name: &str) -> ExitCode {
    let ended = match name {
        "client" => client::run().await,
        "consumer" => consumer::run().await,
        "dispatcher" => dispatcher::run().await,
        "http" => http::run().await,
        "billing" => orders::billing::run().await,
        "place" => orders::place::run().await,
        "fulfilment" => fulfilment::run_from_environment().await.map_err(|error| error as Box<dyn Error>),
        "payments" => payments::run().await,
        "quickstart" => quickstart::run().await,
        "shop" => shop::run().await,
        "signup" => signup::run().await,
        _ => Err(format!("{name:?} is no program of the tests").into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:?}");
            ExitCode::FAILURE
        }
    }
}
