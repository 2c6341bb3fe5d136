//! Calls of vendors that know no keys.
use super::{
    ClientKeys,
    key::{ClientKey, ClientKeyState},
};
use crate::{
    client::ClientError,
    vendor::{Applied, Certainty},
};
use twinbox_core::crash;
use twinbox_sql::{Dialect, Error};

/// The result of [`ClientKeys::call_once`].
#[derive(Debug)]
pub enum Once {
    /// The vendor has acted in this call.
    Applied(Applied),
    /// The vendor had acted in an earlier call.
    Done(ClientKey),
    /// The vendor did nothing. The call may be made again.
    Refused(ClientError),
    /// The vendor may have acted: in this call, which has the error, or in one that is under way, crashed or
    /// was dropped. Nothing is sent until somebody has found out, and says so with [`ClientKeys::finish`] or
    /// [`ClientKeys::not_applied`].
    InDoubt(ClientKey, Option<ClientError>),
}

impl<DB: Dialect> ClientKeys<DB> {
    /// Calls a vendor that knows no keys, at most once for a business action: the key of the action in the
    /// own database takes their place.
    ///
    /// The key is committed as sent before the call is made. Two processes do not both make it, and after a
    /// crash it is not made again by itself. `call` is made with a [`Client`](crate::client::Client), which
    /// makes no second try once the vendor may have acted.
    ///
    /// # Errors
    /// The database refused or is away. After the call that means: in doubt.
    pub async fn call_once(
        &self,
        operation: &str,
        business_id: &str,
        call: impl AsyncFnOnce(&ClientKey) -> Result<Applied, ClientError>,
    ) -> Result<Once, Error> {
        let key = self.begin(operation, business_id).await?;
        if key.is_done() {
            return Ok(Once::Done(key));
        }
        if !self.change(&key, ClientKeyState::Pending, ClientKeyState::Sent).await? {
            // Read again: the other call may have ended meanwhile.
            let key = self.begin(operation, business_id).await?;
            return Ok(if key.is_done() { Once::Done(key) } else { Once::InDoubt(key, None) });
        }
        crash::point("client_keys.sent");
        // It was pending, so no earlier call can have acted.
        let key = ClientKey { is_new: true, ..key };
        match call(&key).await {
            Ok(applied) => {
                crash::point("client_keys.answered");
                self.finish(&key, &applied).await?;
                Ok(Once::Applied(applied))
            }
            Err(error) if error.certainty() == Certainty::MaybeApplied => {
                let key = ClientKey { state: ClientKeyState::Sent, ..key };
                Ok(Once::InDoubt(key, Some(error)))
            }
            Err(error) => {
                self.not_applied(&key).await?;
                Ok(Once::Refused(error))
            }
        }
    }

    /// Says that the vendor did not act, so that the call may be made again, under another key. A key that is
    /// done stays done. A key that somebody has replaced since it was read changes nothing.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn not_applied(&self, key: &ClientKey) -> Result<(), Error> {
        self.change(key, ClientKeyState::Sent, ClientKeyState::Pending).await.map(|_| ())
    }
}
