//! Events, and the conversion of their older versions to the current one.
#[cfg(feature = "schemars")]
mod asyncapi;

#[cfg(feature = "schemars")]
pub use self::asyncapi::AsyncApi;
use crate::boxed::BoxError;
use serde::{Serialize, de::DeserializeOwned};
use std::{error::Error, fmt};

/// One version of an event's payload. `#[derive(Event)]` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a version of an event",
    label = "not a version of an event",
    note = "add `#[derive(Deserialize, Event)]` and `#[event(type = \"…\", version = 1, retired)]`"
)]
pub trait Schema: Sized + Send + Sync + 'static {
    /// The stable name of the type: words joined by dots, like `orders.placed`.
    const TYPE: &'static str;
    /// The number of this version, counted from 1.
    const VERSION: u32;

    /// Reads a payload of any known version and converts it to this one.
    ///
    /// # Errors
    /// The payload does not have the shape of its version, the version is unknown, or a conversion to the
    /// next version failed. Another try does not help.
    fn decode(version: u32, payload: &[u8]) -> Result<Self, DecodeError>;

    /// Returns the versions that [`decode`](Self::decode) reads, oldest first.
    ///
    /// The [`Manifest`](crate::Manifest) of a build lists them.
    fn versions() -> Vec<u32>;
}

/// A fact that can be published and handled, in the current version of its type.
///
/// `#[derive(Event)]` writes code like this:
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use twinbox_core::{DecodeError, Event, Schema};
///
/// #[derive(Serialize, Deserialize)]
/// struct OrderPlaced {
///     order_id: i64,
/// }
///
/// impl Schema for OrderPlaced {
///     const TYPE: &'static str = "orders.placed";
///     const VERSION: u32 = 1;
///
///     fn decode(version: u32, payload: &[u8]) -> Result<Self, DecodeError> {
///         match version {
///             0 => Err(DecodeError::UnknownOlder { found: 0 }),
///             1 => Ok(serde_json::from_slice(payload)?),
///             found => Err(DecodeError::UnknownNewer { found, known: 1 }),
///         }
///     }
///
///     fn versions() -> Vec<u32> {
///         vec![1]
///     }
/// }
///
/// impl Event for OrderPlaced {
///     fn key(&self) -> Option<String> {
///         Some(self.order_id.to_string())
///     }
/// }
///
/// let event = OrderPlaced::decode(1, br#"{"order_id":7}"#)?;
/// assert_eq!(event.key().as_deref(), Some("7"));
/// # Ok::<(), DecodeError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "not an event",
    note = "add `#[derive(Serialize, Deserialize, Event)]` and `#[event(type = \"…\", version = 1)]`",
    note = "a version marked `retired` can be decoded, but neither published nor handled"
)]
pub trait Event: Schema + Serialize + DeserializeOwned {
    /// Whether events of this type have a [`key`](Self::key).
    ///
    /// A consumer refuses to start a handler with `order = "key"` if they have none.
    const HAS_KEY: bool = true;

    /// Returns the key, which orders messages: those with the same key arrive in the order of publishing.
    ///
    /// `None`: the message has no order.
    fn key(&self) -> Option<String>;

    /// Returns the entity that the event is about: the CloudEvents attribute `subject`.
    fn subject(&self) -> Option<String> {
        None
    }
}

/// The reason why a payload cannot be turned into an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload has a newer version than this program knows.
    UnknownNewer {
        /// The version of the payload.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The payload has an older version than this program knows.
    UnknownOlder {
        /// The version of the payload.
        found: u32,
    },
    /// The payload is not JSON, or not of the shape of its version.
    Payload(serde_json::Error),
    /// The consumer's store does not have the codec that encoded the payload.
    UnknownCodec {
        /// The name of the codec.
        codec: String,
    },
    /// The payload is not encoded, and the consumer's store requires that.
    NotEncoded,
    /// The codec could not decode the payload.
    Codec {
        /// The name of the codec.
        codec: String,
        /// The error of the codec.
        source: BoxError,
    },
    /// The conversion to the next version failed.
    Upcast {
        /// The version of the payload before this conversion.
        from: u32,
        /// The error of the conversion.
        source: BoxError,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNewer { found, known } => {
                write!(f, "version {found} is newer than {known}, the newest known here")
            }
            Self::UnknownOlder { found } => {
                write!(f, "there is no upcaster from version {found}: ")?;
                f.write_str("name the type of that version with `previous = …` on the next version")
            }
            Self::Payload(_) => f.write_str("the payload does not have the shape of its version"),
            Self::UnknownCodec { codec } => write!(
                f,
                "the payload was encoded with {codec:?}, which is not configured here: \
                 give it to the consumer's store with `StoreOptions::codec` or `StoreOptions::decoder`"
            ),
            Self::NotEncoded => f.write_str(
                "the payload is not encoded, and the consumer's store refuses that: publish it through a \
                 store with the codec, or leave `StoreOptions::require_codec` away until none is left",
            ),
            Self::Codec { codec, .. } => write!(
                f,
                "the codec {codec:?} cannot decode the payload; \
                 check that the consumer's store has the keys of the producer's store"
            ),
            Self::Upcast { from, .. } => {
                write!(f, "the payload of version {from} cannot be converted to the next version")
            }
        }
    }
}

impl Error for DecodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::UnknownNewer { .. }
            | Self::UnknownOlder { .. }
            | Self::UnknownCodec { .. }
            | Self::NotEncoded => None,
            Self::Payload(error) => Some(error),
            Self::Codec { source, .. } | Self::Upcast { source, .. } => Some(source.as_ref()),
        }
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(e: serde_json::Error) -> Self {
        Self::Payload(e)
    }
}

/// A marker for the version before the oldest one, in the code that `#[derive(Event)]` writes.
#[doc(hidden)]
#[derive(Debug)]
pub enum Oldest {}

impl Oldest {
    #[doc(hidden)]
    pub fn decode<T>(version: u32) -> Result<T, DecodeError> {
        Err(DecodeError::UnknownOlder { found: version })
    }
}

/// Whether two strings are equal, in a `const` context.
#[doc(hidden)]
pub const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    a.len() == b.len() && i == a.len()
}
