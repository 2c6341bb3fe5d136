//! Whether TLS protects connections.
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use twinbox_core::endpoint::{Endpoint, PlainRefused, Protection};

/// With a lower mode than these sqlx takes any certificate, and so any server.
pub(super) fn protection(options: &PgConnectOptions, allow_plain: bool) -> Result<Protection, PlainRefused> {
    if options.get_socket().is_some() {
        return Ok(Protection::Local);
    }
    let is_verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    let endpoint = Endpoint::new(options.get_host()).tls(is_verified).allow_plain(allow_plain);
    endpoint.protection("write `sslmode=verify-full` into its URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verified_certificate_protects_a_connection_to_another_machine() {
        let of = |url: &str, allow_plain| protection(&url.parse().unwrap(), allow_plain);
        for mode in ["", "?sslmode=disable", "?sslmode=allow", "?sslmode=prefer", "?sslmode=require"] {
            let url = format!("postgres://me:hush@db.example.org/shop{mode}");
            let refused = of(&url, false).unwrap_err().to_string();
            assert!(refused.contains("`db.example.org`: write `sslmode=verify-full`"), "{mode}: {refused}");
            assert!(!refused.contains("hush"), "{refused}");
            assert!(of(&url, true).unwrap().warning().is_some(), "{mode}");
        }
        for mode in ["verify-ca", "verify-full"] {
            let url = format!("postgres://me@db.example.org/shop?sslmode={mode}&sslrootcert=ca.pem");
            assert_eq!(of(&url, true), Ok(Protection::Tls), "{mode}");
        }
        for place in [
            "localhost/shop",
            "127.0.0.1:5433/shop",
            "[::1]/shop",
            "%2Fvar%2Frun%2Fpostgresql/shop",
            "/shop?host=/var/run/postgresql",
        ] {
            assert_eq!(of(&format!("postgres://{place}"), false), Ok(Protection::Local), "{place}");
        }
        // The host in a parameter is the one that counts.
        of("postgres://localhost/shop?host=db.example.org", false).unwrap_err();
        of("postgres://localhost/shop?hostaddr=10.0.0.1", false).unwrap_err();
    }
}
