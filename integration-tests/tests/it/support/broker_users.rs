//! The users of the NATS server that tests share, each with the permissions that the page of the broker
//! lists.
use std::fmt::Display;

/// The user of code in the process of a test, with the permissions of all others.
const ALL: &str = "tests";

/// Returns the URL for a user of the page. A server without users lets everybody in.
pub(crate) fn nats_url_for(user: &str, url: &str) -> String {
    url.replace(&format!("://{ALL}:"), &format!("://{user}:"))
}

/// Returns the inbox prefix of the user of a URL.
pub(crate) fn inbox_of(url: &str) -> String {
    let login = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    let user = login.and_then(|(login, _)| login.split_once(':'));
    user.map_or_else(|| "_INBOX".to_owned(), |(user, _)| format!("_INBOX_{user}"))
}

/// Returns the URL without its login, for a client of the test itself.
pub(crate) fn without_login(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, server))) => format!("{scheme}://{server}"),
        _ => url.to_owned(),
    }
}

/// Returns `HOST:PORT` of a URL of one server.
pub(crate) fn host_of(url: &str) -> String {
    let url = without_login(url);
    url.split_once("://").map_or(url.as_str(), |(_, server)| server).to_owned()
}

/// Returns the URL with another address, such as that of a proxy.
pub(crate) fn at_address(url: &str, address: impl Display) -> String {
    url.replace(&host_of(url), &address.to_string())
}

/// Returns the subject prefix of a stream of tests, which those users may publish to.
pub(crate) fn prefix_of(stream: &str) -> String {
    format!("t.{}", stream.to_lowercase())
}
