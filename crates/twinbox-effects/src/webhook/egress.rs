//! Where requests to strangers' URLs may go.
use super::network::{Network, special};
use reqwest::Url;
use std::{error::Error, fmt, net::IpAddr};

/// Where requests to URLs of strangers may go: by default to port 443 of addresses of the public internet,
/// by `https`.
///
/// Private, loopback, link-local, shared, reserved and multicast addresses are refused, and IPv6 addresses
/// that carry an IPv4 address. So a webhook cannot reach the inside of your network, nor the service of a
/// cloud that gives out credentials.
#[derive(Debug, Clone)]
#[must_use]
pub struct Egress {
    networks: Vec<Network>,
    ports: Vec<u16>,
    allows_http: bool,
}

/// The reason why a request was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressError {
    what: String,
    is_final: bool,
}

impl Egress {
    /// Returns the rules for the public internet.
    pub fn new() -> Self {
        Self { networks: Vec::new(), ports: vec![443], allows_http: false }
    }

    /// Allows a network that is not public, such as one of your own or the loopback of a test.
    pub fn allow_network(mut self, network: Network) -> Self {
        self.networks.push(network);
        self
    }

    /// Allows another port.
    pub fn allow_port(mut self, port: u16) -> Self {
        self.ports.push(port);
        self
    }

    /// Allows `http` and its port 80. Everybody on the way can read such a request.
    pub fn allow_http(self) -> Self {
        Self { allows_http: true, ..self }.allow_port(80)
    }

    /// Checks the URL of an endpoint, for the moment when its owner enters it. Names are not resolved: their
    /// addresses are checked when a request connects to one.
    ///
    /// # Errors
    /// The scheme, the port or the address is not allowed, or the URL holds credentials.
    pub fn check(&self, url: &str) -> Result<(), EgressError> {
        let url = Url::parse(url).map_err(|_| EgressError::of_url("the URL of the endpoint is no URL"))?;
        self.check_url(&url)
    }

    pub(super) fn check_url(&self, url: &Url) -> Result<(), EgressError> {
        let refuse = |what: String| Err(EgressError::of_url(what));
        match url.scheme() {
            "https" => {}
            "http" if self.allows_http => {}
            scheme => return refuse(format!("the scheme {scheme:?} of the endpoint is not allowed")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("the URL of the endpoint holds credentials".to_owned());
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if !self.ports.contains(&port) {
            return refuse(format!("the port {port} of the endpoint is not allowed"));
        }
        let Some(host) = url.host_str() else {
            return refuse("the URL of the endpoint has no host".to_owned());
        };
        // The parser of the URL has written each spelling of an address, such as 0x7f.1, as the usual one.
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => {
                self.check_address(address).map_err(|error| EgressError { is_final: true, ..error })
            }
            Err(_) => Ok(()),
        }
    }

    pub(super) fn check_address(&self, address: IpAddr) -> Result<(), EgressError> {
        if self.networks.iter().any(|network| network.contains(address)) {
            return Ok(());
        }
        match special(address) {
            None => Ok(()),
            Some(name) => Err(EgressError {
                what: format!("the address {address} of the endpoint is not allowed: {name}"),
                is_final: false,
            }),
        }
    }
}

impl Default for Egress {
    fn default() -> Self {
        Self::new()
    }
}

impl EgressError {
    fn of_url(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_final: true }
    }

    /// A name without an address.
    pub(super) fn no_address() -> Self {
        Self { what: "the name of the endpoint has no address".to_owned(), is_final: false }
    }

    /// Returns whether the same URL is always refused. A name may have another address later.
    pub fn is_final(&self) -> bool {
        self.is_final
    }
}

impl fmt::Display for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for EgressError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each spelling of an address, and each way to hide where a URL goes.
    #[test]
    fn a_url_that_leads_inside_is_refused() {
        let http = Egress::new().allow_http();
        for (url, says) in [
            ("http://127.0.0.1/", "loopback"),
            ("http://127.1/", "loopback"),
            ("http://127.0.1/", "loopback"),
            ("http://2130706433/", "loopback"),
            ("http://0x7f000001/", "loopback"),
            ("http://0x7f.0.0.1/", "loopback"),
            ("http://0x7F.1/", "loopback"),
            ("http://0177.0.0.1/", "loopback"),
            ("http://017700000001/", "loopback"),
            ("http://127.0.0.1./", "loopback"),
            ("http://127。0。0。1/", "loopback"),
            ("http://１２７.0.0.1/", "loopback"),
            ("http://%31%32%37.0.0.1/", "loopback"),
            ("http:\\\\127.0.0.1\\", "loopback"),
            ("http:127.0.0.1", "loopback"),
            ("http://127.0.0.1\t/", "loopback"),
            ("http://0/", "this network"),
            ("http://0.0.0.0/", "this network"),
            ("http://169.254.169.254/latest/meta-data/", "link-local"),
            ("http://2852039166/", "link-local"),
            ("http://0xa9fea9fe/", "link-local"),
            ("http://100.100.100.200/", "carrier-grade NAT"),
            ("http://[::1]/", "loopback"),
            ("http://[0:0:0:0:0:0:0:1]/", "loopback"),
            ("http://[::]/", "unspecified"),
            ("http://[::ffff:127.0.0.1]/", "IPv4-mapped"),
            ("http://[::ffff:7f00:1]/", "IPv4-mapped"),
            ("http://[::127.0.0.1]/", "IPv4-compatible"),
            ("http://[64:ff9b::169.254.169.254]/", "NAT64"),
            ("http://[2002:7f00:1::]/", "6to4"),
            ("http://[fd00:ec2::254]/", "unique local"),
            ("http://[fe80::1]/", "link-local"),
            ("http://[fe80::1%25eth0]/", "no URL"),
            ("http://1.1.1.1@127.0.0.1/", "credentials"),
            ("https://user:secret@example.com/", "credentials"),
            ("https://user@example.com/", "credentials"),
            ("http://example.com:22/", "the port 22"),
            ("https://example.com:6379/", "the port 6379"),
            ("file:///etc/passwd", "the scheme"),
            ("gopher://example.com/", "the scheme"),
            ("ftp://example.com/", "the scheme"),
            ("data:text/plain,x", "the scheme"),
            ("unix:/var/run/docker.sock", "the scheme"),
            ("//example.com/", "no URL"),
            ("example.com", "no URL"),
            ("", "no URL"),
            ("http://256.256.256.256/", "no URL"),
            ("http://", "no URL"),
        ] {
            let error = http.check(url).expect_err(url);
            assert!(error.to_string().contains(says) && error.is_final(), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_is_allowed_is_named() {
        let strict = Egress::new();
        for url in ["https://example.com/a?b=c", "https://1.1.1.1/", "https://[2606:4700::1111]/"] {
            assert_eq!(strict.check(url), Ok(()), "{url}");
        }
        assert!(strict.check("http://example.com/").is_err());
        assert!(strict.check("https://example.com:8443/").is_err());
        let own = Egress::new().allow_port(8443).allow_network("10.1.0.0/16".parse().unwrap());
        assert_eq!(own.check("https://10.1.2.3:8443/"), Ok(()));
        for url in ["https://10.2.0.1:8443/", "https://[::ffff:10.1.2.3]/", "http://10.1.2.3/"] {
            assert!(own.check(url).is_err(), "{url}");
        }
    }
}
