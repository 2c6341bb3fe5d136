//! Certificates and NATS credentials made for one test.
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair as TlsKey};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A certificate and its key, as PEM files.
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// An authority that others can be told to trust.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, TlsKey>,
    name: &'static str,
    pub(super) certificate: PathBuf,
}

impl Authority {
    pub(super) fn new(folder: &Path, name: &'static str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, TlsKey::generate().unwrap()).unwrap();
        let certificate = folder.join(format!("{name}.pem"));
        std::fs::write(&certificate, issuer.pem()).unwrap();
        Self { issuer, name, certificate }
    }

    /// For a server on this machine, or for a client.
    pub(super) fn issue(&self, folder: &Path, subject: &str) -> Pair {
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, subject);
        let key = TlsKey::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending| folder.join(format!("{}-{subject}.{ending}", self.name));
        let pair = Pair { certificate: file("pem"), key: file("key") };
        std::fs::write(&pair.certificate, certificate.pem()).unwrap();
        std::fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }
}

/// An operator who lets the users of one account in, by what they sign and without a list of them.
pub(super) struct Operator {
    account: KeyPair,
    /// Lines for the configuration of the server.
    pub(super) lines: [String; 4],
}

impl Operator {
    pub(super) fn new() -> Self {
        let (operator, account, system) =
            (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
        let all = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
            "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1});
        let none = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
            "wildcards": true, "conn": -1, "leaf": -1});
        let limits = |limits: Value| json!({"type": "account", "version": 2, "limits": limits});
        let lines = [
            format!("operator: {}", token(&operator, &operator, json!({"type": "operator", "version": 2}))),
            format!("system_account: {}", system.public_key()),
            "resolver: MEMORY".to_owned(),
            format!(
                "resolver_preload: {{ {}: {}, {}: {} }}",
                account.public_key(),
                token(&operator, &account, limits(all)),
                system.public_key(),
                token(&operator, &system, limits(none)),
            ),
        ];
        Self { account, lines }
    }

    /// A `.creds` file for a new user, with the seed of another when it is to be wrong.
    pub(super) fn credentials(&self, folder: &Path, wrong: bool) -> PathBuf {
        let user = KeyPair::new_user();
        let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
        let token = token(&self.account, &user, claims);
        let seed = if wrong { KeyPair::new_user() } else { user }.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let path = folder.join(if wrong { "wrong.creds" } else { "user.creds" });
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// What `issuer` says about `subject`, as NATS signs it.
fn token(issuer: &KeyPair, subject: &KeyPair, nats: Value) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(),
        "sub": subject.public_key(), "name": "test", "nats": nats});
    let signed = format!("{}.{}", part(json!({"typ": "JWT", "alg": "ed25519-nkey"})), part(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap()))
}
