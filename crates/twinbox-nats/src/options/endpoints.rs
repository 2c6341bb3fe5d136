//! The servers of the options, and whether connections to them need TLS.
use super::NatsOptions;
use crate::error::Error;
use async_nats::ServerAddr;
use twinbox_core::endpoint::Endpoint;

/// The schemes of URLs. The client library reads those of WebSockets too, and would use them without TLS.
const SCHEMES: [&str; 2] = ["nats", "tls"];

impl NatsOptions {
    /// Sets whether a connection to another machine may be without TLS, such as in a network that encrypts by
    /// itself. With `true` TLS is used where a URL says `tls://` or the server asks for it. Default: no.
    ///
    /// By default every connection uses TLS, whatever the server says, unless all URLs lead to `localhost` or
    /// to a loopback address, none says `tls://`, and neither [`ca_file`](Self::ca_file) nor
    /// [`client_certificate`](Self::client_certificate) is set. A server that does not speak TLS gets no
    /// login then, and the error has the code `nats.tls`.
    pub fn allow_plain(mut self, allow_plain: bool) -> Self {
        self.allow_plain = allow_plain;
        self
    }

    pub(crate) fn servers(&self) -> Result<Vec<ServerAddr>, Error> {
        let read = |url: &str| {
            let server = url.trim().parse::<ServerAddr>().ok();
            let server = server.filter(|server| SCHEMES.contains(&server.scheme()));
            server.ok_or_else(|| Error::invalid("url", "is not a NATS URL: write `tls://…` or `nats://…`"))
        };
        self.urls.iter().flat_map(|urls| urls.split(',')).map(read).collect()
    }

    /// Returns whether every connection has to use TLS.
    pub(crate) fn need_tls(&self) -> Result<bool, Error> {
        let servers = self.servers()?;
        let has_certificates = self.ca_file.is_some() || self.client_certificate.is_some();
        let needs_tls = |server: &ServerAddr| self.endpoint(server).needs_tls();
        Ok(!self.allow_plain && (has_certificates || servers.iter().any(needs_tls)))
    }

    /// Returns a text for each server to which a connection may be without TLS, though it is on another
    /// machine.
    pub(crate) fn warnings(&self) -> Result<Vec<String>, Error> {
        let warning = |server: &ServerAddr| self.endpoint(server).protection("").ok()?.warning();
        Ok(self.servers()?.iter().filter_map(warning).collect())
    }

    fn endpoint(&self, server: &ServerAddr) -> Endpoint {
        Endpoint::new(server.host()).tls(server.tls_required()).allow_plain(self.allow_plain)
    }
}
