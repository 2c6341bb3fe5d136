//! The URL of a database as it may be printed.
use sqlx::{ConnectOptions as _, mysql::MySqlConnectOptions, postgres::PgConnectOptions};
use twinbox_core::endpoint::masked_url;

/// The port of a URL of MySQL without one.
pub(super) const MYSQL_PORT: u16 = 3306;

/// The URL without its password. Nothing of a URL that cannot be parsed.
pub(super) fn masked(url: &str) -> String {
    if url.starts_with("sqlite:") {
        return url.split('?').next().unwrap_or_default().to_owned();
    }
    if !has_escaped_login(url) {
        return masked_url(url);
    }
    if let (true, Ok(options)) = (url.starts_with("mysql") || url.starts_with("mariadb"), url.parse()) {
        let options: MySqlConnectOptions = options;
        let parsed = options.to_url_lossy();
        let (user, host) = (parsed.username(), parsed.host_str().unwrap_or_default());
        let database = options.get_database().unwrap_or_default();
        return format!("mysql://{user}:***@{host}:{}/{database}", parsed.port().unwrap_or(MYSQL_PORT));
    }
    match url.parse::<PgConnectOptions>() {
        Ok(options) if url.starts_with("postgres") => format!(
            "postgres://{}:***@{}:{}/{}",
            options.get_username(),
            options.get_host(),
            options.get_port(),
            options.get_database().unwrap_or_default()
        ),
        _ => "***".to_owned(),
    }
}

/// Whether the login ends where a parser sees its end: a password that is not escaped ends later.
fn has_escaped_login(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once('@').is_none_or(|(login, place)| !login.contains(['/', '?', '#']) && !place.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        for (url, expected) in [
            ("postgres://me:hush@host/db?password=hush", "postgres://me:***@host:5432/db"),
            ("postgres://me:hu%23sh@host:5/db", "postgres://me:***@host:5/db"),
            ("postgres://me@host/db", "postgres://me:***@host:5432/db"),
            ("postgres://me:hu@sh@host:5/db", "postgres://***@host:5/db"),
            ("postgres://me:h@us/h@host:5/db", "postgres://***@host:5/db"),
            ("postgres://me:h@us/h?x#y@host:5/db", "postgres://***"),
            ("mysql://me:h@us/h@host:5/db", "mysql://***@host:5/db"),
            ("postgres://host/db?sslpassword=h@ush", "postgres://***"),
            ("host=db user=me password=hush", "***"),
            ("sqlite:shop.db?mode=ro", "sqlite:shop.db"),
        ] {
            assert_eq!(masked(url), expected);
        }
    }
}
