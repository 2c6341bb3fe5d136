//! The servers to connect to: those of the options, and those that they name.
use super::link::Link;
use crate::{
    connect::CONNECT_TIMEOUT,
    error::{Error, ErrorKind},
    options::NatsOptions,
};
use async_nats::ServerAddr;
use std::sync::Arc;
use tokio::time::timeout;

/// The most servers that a server may name.
const DISCOVERED_MAX: usize = 64;

pub(super) struct Servers {
    options: Arc<NatsOptions>,
    /// Servers of the cluster that a server named.
    discovered: Vec<ServerAddr>,
}

impl Servers {
    pub(super) fn new(options: Arc<NatsOptions>) -> Self {
        Self { options, discovered: Vec::new() }
    }

    pub(super) fn options(&self) -> &NatsOptions {
        &self.options
    }

    /// Connects to one of the servers, in a random order. Reads the files of the options again.
    ///
    /// # Errors
    /// Of the last server that was tried.
    pub(super) async fn connect(&mut self) -> Result<Link, Error> {
        let options = self.options.with_files().await?;
        let mut servers = options.servers()?;
        servers.extend(self.discovered.iter().cloned());
        fastrand::shuffle(&mut servers);
        let mut failed = Error::new(ErrorKind::Unavailable, "nats.io", "NATS cannot be reached");
        for server in servers {
            match timeout(CONNECT_TIMEOUT, Link::open(&server, &options)).await {
                Ok(Ok(link)) => {
                    self.discover(&link.info.connect_urls);
                    return Ok(link);
                }
                Ok(Err(error)) => failed = error,
                Err(_) => {
                    let text = "connecting to NATS timed out";
                    failed = Error::new(ErrorKind::Unavailable, "nats.timeout", text);
                }
            }
        }
        Err(failed)
    }

    /// Takes over the servers that a server names in place of those before.
    pub(super) fn discover(&mut self, urls: &[String]) {
        let read = urls.iter().filter_map(|url| url.parse().ok());
        self.discovered = read.take(DISCOVERED_MAX).collect();
    }
}
