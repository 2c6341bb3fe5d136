//! The key of a business action.
use crate::client::Call;
use sqlx::Row as _;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use twinbox_core::limits;
use twinbox_sql::{Dialect, Error, ErrorKind, engine::TextColumns};
use uuid::Uuid;

/// The most bytes of the id of a business action.
pub const BUSINESS_ID_BYTES_MAX: usize = 255;

/// The key of a business action, as it was when it was read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientKey {
    /// The operation that is called.
    pub operation: String,
    /// The business action.
    pub business_id: String,
    /// The key, for [`Call::key`](crate::client::Call::key): a UUID of version 7.
    pub key: Uuid,
    /// Whether it was made just now, so that no call has sent it.
    pub is_new: bool,
    /// How long ago it was made, by the clock of the database.
    pub age: Duration,
    /// The state.
    pub state: ClientKeyState,
    /// The vendor's name for what it made, once the action is done.
    pub provider_ref: Option<String>,
    pub(super) read_at: Instant,
    /// Whether a call of this process has taken it. Clones share it.
    pub(super) is_taken: Arc<AtomicBool>,
}

/// The state of a client's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientKeyState {
    /// The action is not known to be done.
    Pending,
    /// A call that must not be repeated is under way, or may have acted.
    Sent,
    /// The vendor has acted.
    Done,
}

impl ClientKey {
    /// Returns whether the vendor has acted.
    pub fn is_done(&self) -> bool {
        self.state == ClientKeyState::Done
    }
}

impl Call {
    /// Sets the key that [`ClientKeys`](crate::ClientKeys) keeps, with its age if a call may have sent it:
    /// one of another process, or an earlier one with the same `ClientKey`.
    pub fn client_key(self, key: &ClientKey) -> Self {
        let call = self.key(key.key);
        let was_taken = key.is_taken.swap(true, Ordering::Relaxed);
        if key.is_new && !was_taken { call } else { call.key_age(key.age + key.read_at.elapsed()) }
    }
}

impl ClientKeyState {
    /// Returns the state as the column `state` holds it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Done => "done",
        }
    }
}

pub(super) fn check(operation: &str, business_id: &str) -> Result<(), Error> {
    let is_name = |text: &str, max| (1..=max).contains(&text.len()) && !text.chars().any(char::is_control);
    let refuse = |what| Err(Error::new(ErrorKind::Configuration, what));
    if !is_name(operation, limits::NAME_BYTES_MAX) {
        return refuse("the operation of a client's key has 1 to 120 bytes and no control character");
    }
    if !is_name(business_id, BUSINESS_ID_BYTES_MAX) {
        return refuse("the business id of a client's key has 1 to 255 bytes and no control character");
    }
    Ok(())
}

pub(super) fn read<DB: Dialect>(
    row: &DB::Row,
    operation: &str,
    business_id: &str,
    is_new: bool,
) -> Result<ClientKey, Error> {
    let state: String = row.text("state")?;
    let age: i64 = row.try_get("age")?;
    Ok(ClientKey {
        operation: operation.to_owned(),
        business_id: business_id.to_owned(),
        key: row.try_get("key")?,
        is_new,
        age: Duration::from_micros(u64::try_from(age).unwrap_or_default()),
        // Any other text would be of a newer program: it is not sent.
        state: match &*state {
            "pending" => ClientKeyState::Pending,
            "done" => ClientKeyState::Done,
            _ => ClientKeyState::Sent,
        },
        provider_ref: row.text_or_null("provider_ref")?,
        read_at: Instant::now(),
        is_taken: Arc::default(),
    })
}
