//! Secrets and times of signed requests.
use std::time::{SystemTime, UNIX_EPOCH};
use twinbox::http::webhook::Secret;

pub(crate) fn secret(n: u8) -> Secret {
    Secret::from_bytes([n; 32]).unwrap()
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
