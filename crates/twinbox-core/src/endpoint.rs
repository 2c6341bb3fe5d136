//! Whether TLS protects a connection that leaves this machine.
use std::{fmt, net::IpAddr};

/// The server that a connection leads to, and how the connection is protected.
///
/// Passwords, tokens and payloads leave this machine only over TLS with a certificate that is verified.
/// Another connection is refused, unless the configuration says `allow_plain`.
///
/// A connection stays on this machine if its host is `localhost`, a loopback address, or the path of a Unix
/// socket. Every other name counts as another machine, whatever address it resolves to: the answer comes from
/// the network.
///
/// ```
/// use twinbox_core::endpoint::{Endpoint, Protection};
///
/// let fix = "write `https://`";
/// let remote = Endpoint::of_url("http://api.example.org/v1").expect("it has a host");
/// let refused = remote.protection(fix).unwrap_err();
/// assert!(refused.to_string().contains("`api.example.org`: write `https://`"));
/// let allowed = remote.allow_plain(true).protection(fix).expect("it is allowed");
/// assert!(allowed.warning().is_some());
/// assert_eq!(Endpoint::new("127.0.0.1").protection(fix), Ok(Protection::Local));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Endpoint {
    host: String,
    has_tls: bool,
    allow_plain: bool,
}

impl Endpoint {
    /// Creates the endpoint of a connection without TLS to a host: a name, an address, or the path of a Unix
    /// socket.
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), has_tls: false, allow_plain: false }
    }

    /// Reads the host of a URL such as `https://host:8443/path`. The schemes `https` and `tls` stand for TLS.
    /// `None`: the text has no host.
    pub fn of_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#', '\\']).next()?;
        let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
        let host = match place.strip_prefix('[') {
            Some(address) => address.split_once(']')?.0,
            None => place.split(':').next()?,
        };
        let has_tls = ["https", "tls"].iter().any(|tls| scheme.eq_ignore_ascii_case(tls));
        (!host.is_empty()).then(|| Self::new(host).tls(has_tls))
    }

    /// Sets whether the connection uses TLS and verifies the certificate of the server.
    pub fn tls(self, has_tls: bool) -> Self {
        Self { has_tls, ..self }
    }

    /// Sets whether the configuration allows a connection to another machine without such TLS.
    pub fn allow_plain(self, allow_plain: bool) -> Self {
        Self { allow_plain, ..self }
    }

    /// Returns how the connection is protected. `fix`: what gives it TLS, such as "write `https://`".
    ///
    /// # Errors
    /// The connection would leave this machine without verified TLS, and that is not allowed.
    pub fn protection(&self, fix: &'static str) -> Result<Protection, PlainRefused> {
        match self {
            Self { has_tls: true, .. } => Ok(Protection::Tls),
            Self { host, .. } if is_local(host) => Ok(Protection::Local),
            Self { host, allow_plain: true, .. } => Ok(Protection::AllowedPlain(host.clone())),
            Self { host, .. } => Err(PlainRefused { host: host.clone(), fix }),
        }
    }

    /// Returns whether the connection has to use TLS.
    pub fn needs_tls(&self) -> bool {
        self.has_tls || !(self.allow_plain || is_local(&self.host))
    }
}

fn is_local(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns a URL as it may be printed: `***` stands for the login and for the parameters.
///
/// Not every password is escaped. So the login ends at the last `@`, and may have any character, such as `/`
/// or `@`. The scheme alone is left where the end of a password cannot be told: a `?` or a `#` comes before
/// that `@`, or a port is no number. A text without a scheme is `***`.
///
/// Where the host was forgotten, user and password look like a host and its port: `postgres://me:12345/shop`
/// is printed as it is, because its password has only digits.
///
/// ```
/// use twinbox_core::endpoint::masked_url;
///
/// let url = "postgres://me:hush@db.example.org/shop?sslmode=verify-full";
/// assert_eq!(masked_url(url), "postgres://***@db.example.org/shop?***");
/// assert_eq!(masked_url("postgres://me:hu?sh@db.example.org/shop"), "postgres://***");
/// ```
pub fn masked_url(url: &str) -> String {
    if let Some(file) = url.strip_prefix("sqlite:") {
        let (file, parameters) = without_parameters(file);
        return format!("sqlite:{file}{parameters}");
    }
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let split = url.split_once("://").filter(|(scheme, _)| scheme.bytes().all(is_of_scheme));
    let Some((scheme, rest)) = split else { return "***".to_owned() };
    let (login, place) = rest.rsplit_once('@').map_or(("", rest), |(login, place)| (login, place));
    let (place, parameters) = without_parameters(place);
    if login.contains(['?', '#']) || !place.split(',').all(has_port_of_digits) {
        return format!("{scheme}://***");
    }
    let login = if rest.contains('@') { "***@" } else { "" };
    format!("{scheme}://{login}{place}{parameters}")
}

/// Splits the parameters off, and returns what stands for them.
fn without_parameters(place: &str) -> (&str, &'static str) {
    place.find(['?', '#']).map_or((place, ""), |end| (&place[..end], "?***"))
}

/// Whether a server of a URL has a number as its port, or none. A URL without a host has a password there.
fn has_port_of_digits(server: &str) -> bool {
    let server = server.split_once("://").map_or(server, |(_, server)| server);
    let authority = server.split('/').next().unwrap_or_default();
    let after_address = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    after_address.split_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The protection of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// TLS with a certificate that is verified.
    Tls,
    /// The connection stays on this machine.
    Local,
    /// Perhaps none, because `allow_plain` allows that. It holds the host, which is another machine.
    AllowedPlain(String),
}

impl Protection {
    /// Returns what an operator should know about the connection. `None`: it is protected.
    pub fn warning(&self) -> Option<String> {
        match self {
            Self::Tls | Self::Local => None,
            Self::AllowedPlain(host) => Some(format!(
                "no verified TLS protects the connection to the host `{host}`: `allow_plain` allows that"
            )),
        }
    }
}

/// The error of a connection that would leave this machine without verified TLS. Its text says what gives the
/// connection TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainRefused {
    host: String,
    fix: &'static str,
}

impl fmt::Display for PlainRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, fix } = self;
        write!(f, "no verified TLS protects the connection to the host `{host}`: {fix}")
    }
}

impl std::error::Error for PlainRefused {}

#[cfg(test)]
mod tests {
    use super::*;

    const FIX: &str = "write `tls://`";

    #[test]
    fn only_localhost_loopback_addresses_and_sockets_are_this_machine() {
        for host in [
            "localhost",
            "LocalHost",
            "127.0.0.1",
            "127.9.8.7",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            "/var/run/postgresql",
        ] {
            assert_eq!(Endpoint::new(host).protection(FIX), Ok(Protection::Local), "{host}");
            assert!(!Endpoint::new(host).needs_tls(), "{host}");
        }
        for host in [
            "",
            "db",
            "db.example.org",
            "10.0.0.1",
            "0.0.0.0",
            "::",
            "fe80::1",
            "128.0.0.1",
            // Names that may resolve to a loopback address.
            "127.1",
            "0x7f000001",
            "ip6-localhost",
            "localhost.localdomain",
            "localhost.example.org",
            "127.0.0.1.example.org",
        ] {
            let refused = Endpoint::new(host).protection(FIX).unwrap_err();
            assert_eq!(refused, PlainRefused { host: host.to_owned(), fix: FIX });
            assert!(Endpoint::new(host).needs_tls(), "{host}");
        }
    }

    #[test]
    fn another_machine_needs_tls_or_the_word() {
        let remote = || Endpoint::new("db.example.org");
        assert_eq!(remote().tls(true).protection(FIX), Ok(Protection::Tls));
        assert_eq!(remote().tls(true).allow_plain(true).protection(FIX), Ok(Protection::Tls));
        let allowed = remote().allow_plain(true);
        assert_eq!(allowed.protection(FIX), Ok(Protection::AllowedPlain("db.example.org".to_owned())));
        assert!(!allowed.needs_tls() && remote().tls(true).allow_plain(true).needs_tls());
        // Where it is given, TLS is used on this machine too.
        assert!(Endpoint::new("localhost").tls(true).needs_tls());
        let text = remote().protection(FIX).unwrap_err().to_string();
        assert!(text.contains("`db.example.org`: write `tls://`"), "{text}");
    }

    #[test]
    fn only_an_allowed_plain_connection_has_a_warning() {
        assert_eq!((Protection::Tls.warning(), Protection::Local.warning()), (None, None));
        let warning = Protection::AllowedPlain("db".to_owned()).warning().unwrap();
        assert!(warning.contains("`db`") && warning.contains("`allow_plain`"), "{warning}");
    }

    #[test]
    fn no_part_of_a_password_is_printed() {
        let of = |login: &str| masked_url(&format!("postgres://{login}@db:5/shop?sslmode=disable"));
        let masked = "postgres://***@db:5/shop?***";
        for login in [
            "me:hush",
            "me:p@ss/w:rd",
            "me:p%40ss%2Fw%3Ard",
            "me:пароль@密码/x",
            ":hush",
            "me:",
            "me",
            "",
            "me:a,b://c",
            "me:[x]:y",
        ] {
            assert_eq!(of(login), masked, "{login}");
        }
        for login in ["me:p@ss/w:rd?x#y", "me:?", "#", "me:password=x?password=y"] {
            assert_eq!(of(login), "postgres://***", "{login}");
        }
    }

    #[test]
    fn a_printed_url_has_no_parameters() {
        for (url, masked) in [
            ("postgres://db/shop?user=me&password=hush&sslpassword=hush", "postgres://db/shop?***"),
            ("postgres://me:hush@db/shop?password=hu@sh", "postgres://***"),
            ("postgres://db/shop?password=hu@sh", "postgres://***"),
            ("postgres:///shop?host=/run/pg&password=hush", "postgres:///shop?***"),
            ("mysql://me:hush@[::1]:3306/shop?ssl-mode=DISABLED", "mysql://***@[::1]:3306/shop?***"),
            ("https://api.example.org/v1#hush", "https://api.example.org/v1?***"),
            ("sqlite:shop.db?mode=ro", "sqlite:shop.db?***"),
            ("sqlite:/var/lib/shop.db", "sqlite:/var/lib/shop.db"),
            ("tls://one:4222,tls://two:4222", "tls://one:4222,tls://two:4222"),
            ("tls://me:hush@one,tls://you:hush@[::1]", "tls://***@[::1]"),
        ] {
            assert_eq!(masked_url(url), masked, "{url}");
        }
    }

    #[test]
    fn a_text_that_is_no_url_is_not_printed() {
        for (text, masked) in [
            ("host=db user=me password=hush", "***"),
            ("hush", "***"),
            ("", "***"),
            ("password=hush://db", "***"),
            // Its host was forgotten.
            ("postgres://me:hush", "postgres://***"),
            ("postgres://me:hush/shop", "postgres://***"),
            ("nats://a:4222,me:hush", "nats://***"),
        ] {
            assert_eq!(masked_url(text), masked, "{text}");
        }
    }

    #[test]
    fn the_host_of_a_url_is_the_one_that_is_connected_to() {
        for (url, host, has_tls) in [
            ("http://localhost", "localhost", false),
            ("HTTPS://api.example.org:8443/v1?a=@b", "api.example.org", true),
            ("tls://[::1]:4222", "::1", true),
            ("http://localhost:80@evil.example/", "evil.example", false),
            ("http://evil.example\\@localhost/", "evil.example", false),
            ("http://evil.example#@localhost", "evil.example", false),
            ("httpsx://api.example.org", "api.example.org", false),
        ] {
            assert_eq!(Endpoint::of_url(url), Some(Endpoint::new(host).tls(has_tls)), "{url}");
        }
        for none in ["", "api.example.org", "http://", "http:///path", "http://:80", "http://[::1"] {
            assert_eq!(Endpoint::of_url(none), None, "{none}");
        }
    }
}
