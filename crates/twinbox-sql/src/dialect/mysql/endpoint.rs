//! Whether TLS protects connections.
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use twinbox_core::endpoint::{Endpoint, PlainRefused, Protection};

/// With a lower mode than these sqlx takes any certificate, and so any server.
pub(super) fn protection(
    options: &MySqlConnectOptions,
    allow_plain: bool,
) -> Result<Protection, PlainRefused> {
    if options.get_socket().is_some() {
        return Ok(Protection::Local);
    }
    let is_verified = matches!(options.get_ssl_mode(), MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
    let endpoint = Endpoint::new(options.get_host()).tls(is_verified).allow_plain(allow_plain);
    endpoint.protection("write `ssl-mode=VERIFY_IDENTITY` into its URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verified_certificate_protects_a_connection_to_another_machine() {
        let of = |url: &str, allow_plain| protection(&url.parse().unwrap(), allow_plain);
        for mode in ["", "?ssl-mode=DISABLED", "?ssl-mode=PREFERRED", "?ssl-mode=REQUIRED"] {
            let url = format!("mysql://me:hush@db.example.org/shop{mode}");
            let refused = of(&url, false).unwrap_err().to_string();
            assert!(refused.contains("`db.example.org`: write `ssl-mode=VERIFY_IDENTITY`"), "{refused}");
            assert!(of(&url, true).unwrap().warning().is_some(), "{mode}");
        }
        for mode in ["VERIFY_CA", "VERIFY_IDENTITY"] {
            let url = format!("mysql://me@db.example.org/shop?ssl-mode={mode}&ssl-ca=ca.pem");
            assert_eq!(of(&url, true), Ok(Protection::Tls), "{mode}");
        }
        for url in [
            "mysql://localhost/shop",
            "mysql://127.0.0.1:3307/shop",
            "mysql://db.example.org/shop?socket=/run/mysqld.sock",
        ] {
            assert_eq!(of(url, false), Ok(Protection::Local), "{url}");
        }
    }
}
