//! MariaDB: the relay as a ratio to a bare client, producers to a plain table, a consumer to a loop by hand.
mod consumer;
mod producer;
mod relay;

use crate::{failure::Failure, report::Report};

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    relay::run(report).await?;
    producer::run(report).await?;
    consumer::run(report).await
}
