//! A codec of payloads, and stores that use it.
use super::{
    database::SERVICE,
    stores::{TestDb, World},
};
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};
use twinbox::{
    Store, StoreOptions,
    codec::{EncodedPayload, PayloadCodec, PayloadContext},
    seam::BoxError,
};

/// Imitates an encryption with a nonce and associated data.
pub(crate) struct Cipher {
    name: &'static str,
    key: u8,
    nonce: AtomicU8,
}

impl Cipher {
    pub(crate) fn new(name: &'static str, key: u8) -> Self {
        Self { name, key, nonce: AtomicU8::new(1) }
    }

    fn tag(context: &PayloadContext<'_>) -> [u8; 8] {
        let mut hash = DefaultHasher::new();
        context.associated_data().hash(&mut hash);
        hash.finish().to_be_bytes()
    }
}

impl PayloadCodec for Cipher {
    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<EncodedPayload, BoxError> {
        if payload.starts_with(b"refuse") {
            return Err("the key is not there".into());
        }
        let nonce = self.nonce.fetch_add(1, Relaxed);
        let bytes = payload.iter().map(|byte| byte ^ self.key ^ nonce);
        let bytes: Vec<u8> = [nonce].into_iter().chain(Self::tag(context)).chain(bytes).collect();
        Ok(EncodedPayload::new(bytes).header("key-id", self.key.to_string()))
    }

    fn decode(
        &self,
        context: &PayloadContext<'_>,
        headers: &[(String, String)],
        payload: &[u8],
    ) -> Result<Vec<u8>, BoxError> {
        let key = headers.iter().find(|(name, _)| name == "key-id").ok_or("no key id")?;
        if key.1 != self.key.to_string() {
            return Err(format!("no key {}", key.1).into());
        }
        let (nonce, rest) = payload.split_first().ok_or("too short")?;
        let (tag, rest) = rest.split_first_chunk::<8>().ok_or("too short")?;
        if *tag != Self::tag(context) {
            return Err("another row's payload".into());
        }
        Ok(rest.iter().map(|byte| byte ^ self.key ^ nonce).collect())
    }
}

pub(crate) fn store_with<DB: TestDb>(world: &World<DB>, options: StoreOptions) -> Store<DB> {
    Store::with_options(world.pool().clone(), SERVICE, options).unwrap()
}

pub(crate) fn ciphered<DB: TestDb>(world: &World<DB>) -> Store<DB> {
    store_with(world, StoreOptions::new().codec(Cipher::new("cipher", 7)))
}

/// The same, and what nobody encoded is refused.
pub(crate) fn strict<DB: TestDb>(world: &World<DB>) -> Store<DB> {
    store_with(world, StoreOptions::new().codec(Cipher::new("cipher", 7)).require_codec())
}
