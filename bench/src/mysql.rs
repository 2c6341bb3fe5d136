//! MariaDB: the relay as a ratio to a bare client, producers to a plain table, a consumer to a loop by hand.
mod consumer;
mod producer;
mod relay;

use crate::{failure::Failure, report::Report};

/// Runs one of the three, or all.
pub(crate) async fn run(argument: Option<&String>, report: &mut Report) -> Result<(), Failure> {
    let is_wanted = |name: &str| argument.is_none_or(|wanted| wanted == name);
    if is_wanted("relay") {
        relay::run(report).await?;
    }
    if is_wanted("producer") {
        producer::run(report).await?;
    }
    if is_wanted("consumer") {
        consumer::run(report).await?;
    }
    Ok(())
}
