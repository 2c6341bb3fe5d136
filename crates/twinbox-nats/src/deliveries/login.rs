//! The login that a connection sends, from what the options and their files hold now.
use crate::{
    error::{Error, ErrorKind},
    options::NatsOptions,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use serde::Serialize;
use std::path::Path;

/// The fields of `CONNECT` that say who connects.
#[derive(Default, Serialize)]
pub(super) struct Login {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

/// Returns the login for a server that asks to sign `nonce`.
pub(super) async fn login(options: &NatsOptions, nonce: &str) -> Result<Login, Error> {
    let mut login = match options.login()? {
        Some((user, Some(pass))) => Login { user: Some(user), pass: Some(pass), ..Login::default() },
        Some((token, None)) => Login { auth_token: Some(token), ..Login::default() },
        None => Login::default(),
    };
    if let Some(token) = &options.token {
        login.auth_token = Some(token.clone());
    }
    if let Some(file) = &options.credentials_file {
        let (jwt, signature) = sign(file, nonce).await?;
        (login.jwt, login.sig) = (Some(jwt), Some(signature));
    }
    Ok(login)
}

/// Returns the token of a `.creds` file, and the signature of its key under `nonce`.
async fn sign(file: &Path, nonce: &str) -> Result<(String, String), Error> {
    let failed = || {
        let text = "the credentials file cannot be read";
        Error::new(ErrorKind::InvalidOptions, "nats.credentials", text)
    };
    let text = tokio::fs::read_to_string(file).await.map_err(|e| failed().with_source(e))?;
    let (jwt, seed) = credentials(&text).ok_or_else(failed)?;
    let key = KeyPair::from_seed(seed).map_err(|e| failed().with_source(e))?;
    let signature = key.sign(nonce.as_bytes()).map_err(|e| failed().with_source(e))?;
    Ok((jwt.to_owned(), URL_SAFE_NO_PAD.encode(signature)))
}

/// Returns token and seed: the lines that follow the first two `BEGIN` lines.
fn credentials(text: &str) -> Option<(&str, &str)> {
    let lines = text.lines().map(str::trim);
    let mut begins = lines.clone().zip(lines.skip(1)).filter(|(line, _)| line.starts_with("-----BEGIN "));
    Some((begins.next()?.1, begins.next()?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credentials_file_holds_a_token_and_a_seed() {
        let file = "-----BEGIN NATS USER JWT-----\r\neyJ0\r\n------END NATS USER JWT------\r\n\r\n\
            ***** IMPORTANT *****\r\n-----BEGIN USER NKEY SEED-----\r\nSUAB\r\n\
            ------END USER NKEY SEED------\r\n";
        assert_eq!(credentials(file), Some(("eyJ0", "SUAB")));
        assert_eq!(credentials("-----BEGIN NATS USER JWT-----\neyJ0\n"), None);
        assert_eq!(credentials(""), None);
    }
}
