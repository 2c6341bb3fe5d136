//! An operation in one call.
use super::{
    digest::RequestDigest,
    key::{OperationKey, OperationPolicy},
    response::{OperationResponse, ResponseBody},
    start::OperationStart,
};
use crate::{Dialect, Error, ErrorKind, HandlerError, HandlerResult, Store, Tx};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// The result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationOutcome<T> {
    /// The operation ran now, and everything is written.
    Committed(T),
    /// The operation ran before, with this result. Nothing ran now.
    Duplicate(T),
}

impl<T> OperationOutcome<T> {
    /// Returns the value, whether it was made now or before.
    pub fn into_inner(self) -> T {
        match self {
            Self::Committed(value) | Self::Duplicate(value) => value,
        }
    }
}

/// The reason why an operation has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum OperationError {
    /// The key was used for another request. Nothing ran.
    Mismatch,
    /// A copy of the operation is running, for longer than was waited. Nothing ran: ask again with the same
    /// key.
    InFlight,
    /// The principal has as many keys as [`OperationPolicy::live_max`] allows. Nothing ran.
    TooMany,
    /// The closure of the operation failed. Its writes are rolled back, and its key is free, unless on MySQL
    /// it has committed some by itself.
    Failed(HandlerError),
    /// The database refused or is away, or the request or the result cannot be JSON. Nothing is written.
    /// After [`ErrorKind::CommitUnknown`] it is unknown: ask again with the same key.
    Store(Error),
}

impl<DB: Dialect> Store<DB> {
    /// Runs a closure once for a key, in a transaction that commits its writes together with the key and its
    /// result. Called again with the same key and the same `request`, it returns that result and runs
    /// nothing.
    ///
    /// An error rolls everything back and leaves the key free, so that it can be tried again. A process that
    /// crashes has done all of it or nothing.
    ///
    /// # Errors
    /// [`OperationError`]
    ///
    /// # Examples
    /// ```
    /// # use twinbox_sql::{Store, operation::{OperationKey, OperationOutcome, OperationPolicy}, sqlite};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::new(sqlite::open(dir.path().join("shop.db")).await?, "shop")?;
    /// # store.migrate().await?;
    /// # sqlx::query("CREATE TABLE payments (cents INTEGER)").execute(store.pool()).await?;
    /// let key = OperationKey { scope: "pay".into(), key: "order-7".into(), ..OperationKey::default() };
    /// let policy = OperationPolicy::default();
    /// for _ in 0..2 {
    ///     let paid = store.operation(&key, &4200, &policy, async |tx| {
    ///         sqlx::query("INSERT INTO payments VALUES (4200)").execute(&mut **tx).await?;
    ///         Ok("paid".to_owned())
    ///     });
    ///     assert_eq!(paid.await?.into_inner(), "paid");
    /// }
    /// # let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM payments");
    /// # let payments = count.fetch_one(store.pool()).await?;
    /// assert_eq!(payments, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn operation<R, T, F>(
        &self,
        key: &OperationKey,
        request: &R,
        policy: &OperationPolicy,
        run: F,
    ) -> Result<OperationOutcome<T>, OperationError>
    where
        R: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&mut Tx<'_, DB>) -> HandlerResult<T>,
    {
        let body = serde_json::to_vec(request).map_err(json)?;
        let request = RequestDigest::new(Vec::new(), body);
        let keys = self.idempotency_keys();
        let mut operation = match keys.begin(key, &request, policy).await? {
            OperationStart::Open(operation) => operation,
            OperationStart::Completed(response) => return stored(&response).map(OperationOutcome::Duplicate),
            OperationStart::Mismatch => return Err(OperationError::Mismatch),
            OperationStart::InFlight => return Err(OperationError::InFlight),
            OperationStart::TooMany => return Err(OperationError::TooMany),
        };
        let value = match run(&mut operation.tx()).await {
            Ok(value) => value,
            Err(error) => {
                operation.abandon().await;
                return Err(OperationError::Failed(error));
            }
        };
        let response = match serde_json::to_vec(&value) {
            Ok(body) => {
                OperationResponse { body: ResponseBody::Inline(body), ..OperationResponse::default() }
            }
            Err(error) => {
                operation.abandon().await;
                return Err(json(error).into());
            }
        };
        match operation.commit(&response).await {
            Ok(()) => Ok(OperationOutcome::Committed(value)),
            Err(error) if error.kind() == ErrorKind::CommitUnknown => match keys.find(key, &request).await {
                Ok(Some(found)) if found == response => Ok(OperationOutcome::Committed(value)),
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

fn stored<T: DeserializeOwned>(response: &OperationResponse) -> Result<T, OperationError> {
    let ResponseBody::Inline(body) = &response.body else {
        return Err(
            Error::new(ErrorKind::Configuration, "the key belongs to an operation of another kind").into()
        );
    };
    serde_json::from_slice(body).map_err(|e| json(e).into())
}

fn json(error: serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Configuration,
        "the request or the result of an operation cannot be written as JSON",
    )
    .with_source(error)
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch => f.write_str("another request has the key"),
            Self::InFlight => f.write_str("a copy of the request is running: ask again with the same key"),
            Self::TooMany => {
                f.write_str("the principal has as many keys as it may have: ask again when some have expired")
            }
            Self::Failed(error) => write!(f, "the operation failed: {error}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OperationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            _ => None,
        }
    }
}
