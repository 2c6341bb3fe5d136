//! The servers to connect to: those of the options, and none that only a server names.
use super::link::Link;
use crate::{
    connect::CONNECT_TIMEOUT,
    error::{Error, ErrorKind},
    options::NatsOptions,
};
use std::sync::Arc;
use tokio::time::timeout;

pub(super) struct Servers(Arc<NatsOptions>);

impl Servers {
    pub(super) fn new(options: Arc<NatsOptions>) -> Self {
        Self(options)
    }

    pub(super) fn options(&self) -> &NatsOptions {
        &self.0
    }

    /// Connects to one of the servers, in a random order. Reads the files of the options again.
    ///
    /// # Errors
    /// Of the last server that was tried.
    pub(super) async fn connect(&self) -> Result<Link, Error> {
        let options = self.0.with_files().await?;
        let mut servers = options.servers()?;
        fastrand::shuffle(&mut servers);
        let mut failed = Error::new(ErrorKind::Unavailable, "nats.io", "NATS cannot be reached");
        for server in servers {
            match timeout(CONNECT_TIMEOUT, Link::open(&server, &options)).await {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => failed = error,
                Err(_) => {
                    let text = "connecting to NATS timed out";
                    failed = Error::new(ErrorKind::Unavailable, "nats.timeout", text);
                }
            }
        }
        Err(failed)
    }
}
