//! The settings of access.
use super::{
    error::AccessError,
    principal::{Principal, Role},
    proxy::Proxy,
    tokens::Tokens,
};
use std::{collections::HashSet, net::IpAddr};

/// How the console knows who asks, and whether it allows changes. Default: nobody may change anything.
#[derive(Debug, Clone)]
#[must_use]
pub struct Access {
    pub(crate) identity: Identity,
    pub(crate) allows_changes: bool,
    pub(crate) hosts: Vec<String>,
}

/// How the console knows who asks.
#[derive(Debug, Clone)]
pub(crate) enum Identity {
    /// Everybody who reaches the port is this operator.
    Loopback(Principal),
    /// A token from a file, exchanged for a session.
    Tokens(Tokens),
    /// A header that a proxy sets.
    Proxy(Proxy),
}

impl Access {
    /// Lets everybody in who reaches the port, as one operator with this name. [`Console::serve`] refuses a
    /// port that other machines reach.
    ///
    /// Everybody who has an account on this machine can reach it.
    ///
    /// [`Console::serve`]: crate::Console::serve
    pub fn loopback(operator: impl Into<String>) -> Self {
        let principal = Principal { name: operator.into(), role: Role::Operator };
        Self::new(Identity::Loopback(principal))
    }

    /// Lets in who has a token of a file. Each line has a role, a name and a token of at least 32 characters:
    /// `operator ada 3f0c…`. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// A line cannot be read, a token is too short or is there twice, or there is none.
    pub fn tokens(file: &str) -> Result<Self, AccessError> {
        Ok(Self::new(Identity::Tokens(Tokens::parse(file)?)))
    }

    /// Lets in whom a proxy names in a header. Requests from other addresses than `proxies` are refused, and
    /// the proxy has to remove the header from requests that come with it. Principals in `operators` are
    /// operators, all others viewers.
    ///
    /// # Errors
    /// There is no proxy, or the name of the header is none.
    pub fn proxy(
        header: &str,
        proxies: impl IntoIterator<Item = IpAddr>,
        operators: impl IntoIterator<Item = String>,
    ) -> Result<Self, AccessError> {
        let (proxies, operators) = (HashSet::from_iter(proxies), HashSet::from_iter(operators));
        Ok(Self::new(Identity::Proxy(Proxy::new(header, proxies, operators)?)))
    }

    fn new(identity: Identity) -> Self {
        Self { identity, allows_changes: false, hosts: Vec::new() }
    }

    /// Allows operators to change things.
    pub fn allow_changes(self, allows: bool) -> Self {
        Self { allows_changes: allows, ..self }
    }

    /// Adds a name under which browsers reach the console, such as `console.example.org` or
    /// `console.example.org:8443`. Addresses of this machine are always allowed. Requests for other names are
    /// refused, so that no other site can reach the console through its visitors.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Whether a port that other machines reach is safe.
    pub(crate) fn is_for_this_machine_only(&self) -> bool {
        matches!(self.identity, Identity::Loopback(_))
    }
}
