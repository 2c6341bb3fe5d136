//! The settings of a route that receives webhooks.
use super::verifier::Verifier;
use crate::{body::BodyReader, settings::HANDLER_TIMEOUT};
use std::time::Duration;
use twinbox_sql::{Dialect, Store};

pub(super) const RETENTION_MIN: Duration = Duration::from_secs(7 * 24 * 3600);
pub(super) const RETENTION_MAX: Duration = Duration::from_secs(90 * 24 * 3600);

pub(super) struct Endpoint<DB: Dialect> {
    pub(super) store: Store<DB>,
    pub(super) provider: String,
    pub(super) name: String,
    pub(super) verifier: Verifier,
    /// A JSON pointer.
    pub(super) id_in_body: Option<String>,
    pub(super) retention: Duration,
    pub(super) handler_timeout: Duration,
    pub(super) body_reader: BodyReader,
}

impl<DB: Dialect> Endpoint<DB> {
    pub(super) fn new(store: Store<DB>, provider: String, name: String, verifier: Verifier) -> Self {
        Self {
            store,
            provider,
            name,
            id_in_body: verifier.scheme().id_in_body().map(str::to_owned),
            verifier,
            retention: RETENTION_MIN,
            handler_timeout: HANDLER_TIMEOUT,
            body_reader: BodyReader::default(),
        }
    }
}

impl<DB: Dialect> Clone for Endpoint<DB> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            provider: self.provider.clone(),
            name: self.name.clone(),
            verifier: self.verifier.clone(),
            id_in_body: self.id_in_body.clone(),
            body_reader: self.body_reader.clone(),
            ..*self
        }
    }
}
