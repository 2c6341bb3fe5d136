//! Events, their versions, and the chain from an old version to the current one.
use crate::BoxError;
use serde::{Serialize, de::DeserializeOwned};
use std::{error::Error, fmt};

/// One version of a payload. `#[derive(Event)]` writes it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no version of an event",
    label = "not a version of an event",
    note = "add `#[derive(Deserialize, Event)]` and `#[event(type = \"…\", version = 1, retired)]`"
)]
pub trait Schema: Sized + Send + Sync + 'static {
    /// The stable name of the type: words joined by dots, like `orders.placed`.
    const TYPE: &'static str;
    /// Counted from 1.
    const VERSION: u32;

    /// Reads a payload written as `version`, through the older versions that this one names.
    ///
    /// # Errors
    /// The payload does not have the shape of its version, the version is not known here, or an upcast
    /// refused it. None of these goes away by trying again.
    fn decode(version: u32, payload: &[u8]) -> Result<Self, DecodeError>;

    /// The versions that [`decode`](Self::decode) reads, oldest first. It is what a build says of itself before it is
    /// deployed, see [`Manifest`](crate::Manifest).
    fn versions() -> Vec<u32>;
}

/// A fact that can be published and handled: the current version of its type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "not an event",
    note = "add `#[derive(Serialize, Deserialize, Event)]` and `#[event(type = \"…\", version = 1)]`",
    note = "a version marked `retired` can be decoded, but neither published nor handled"
)]
pub trait Event: Schema + Serialize + DeserializeOwned {
    /// Whether its events have a [`key`](Self::key). A handler that asks for the order of keys is refused without.
    const HAS_KEY: bool = true;

    /// What orders this event against others: messages with one key arrive in the order in which they were
    /// published. None: no order.
    fn key(&self) -> Option<String>;

    /// The entity that the event is about, CloudEvents `subject`.
    fn subject(&self) -> Option<String> {
        None
    }
}

/// Why a payload could not be turned into an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// Written by a newer program than this one.
    Newer {
        /// The version of the payload.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// Older than the oldest version that this program names.
    Forgotten {
        /// The version of the payload.
        found: u32,
    },
    /// Not JSON, or not of the shape that its version says.
    Payload(serde_json::Error),
    /// Encoded with a codec that is not configured here.
    UnknownCodec {
        /// Its name.
        codec: String,
    },
    /// The codec that encoded it cannot decode it.
    Codec {
        /// Its name.
        codec: String,
        /// What the codec said.
        source: BoxError,
    },
    /// The conversion to the next version refused it.
    Upcast {
        /// The version that was converted.
        from: u32,
        /// What the conversion said.
        source: BoxError,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { found, known } => {
                write!(f, "version {found} is newer than {known}, the newest known here")
            }
            Self::Forgotten { found } => {
                write!(f, "no upcaster from {found}: name its type with `previous = …` on the next version")
            }
            Self::Payload(e) => write!(f, "the payload does not have the shape of its version: {e}"),
            Self::UnknownCodec { codec } => write!(
                f,
                "the payload was encoded with {codec:?}, which is not configured here: \
                 give it to the consumer's store with `StoreOptions::codec` or `StoreOptions::decoder`"
            ),
            Self::Codec { codec, source } => write!(
                f,
                "the codec {codec:?} cannot decode the payload: {source}; \
                 does the consumer's store have the keys that the producer's has?"
            ),
            Self::Upcast { from, source } => {
                write!(f, "version {from} cannot become the next one: {source}")
            }
        }
    }
}

impl Error for DecodeError {}

impl From<serde_json::Error> for DecodeError {
    fn from(e: serde_json::Error) -> Self {
        Self::Payload(e)
    }
}

/// Ends every chain of versions.
#[doc(hidden)]
#[derive(Debug)]
pub enum Oldest {}

impl Oldest {
    #[doc(hidden)]
    pub fn decode<T>(version: u32) -> Result<T, DecodeError> {
        Err(DecodeError::Forgotten { found: version })
    }
}

/// `a == b` for a `const` block.
#[doc(hidden)]
pub const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    a.len() == b.len() && i == a.len()
}
