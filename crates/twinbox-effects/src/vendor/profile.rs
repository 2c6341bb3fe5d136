//! The promises of a vendor about repeated calls, as data.
use crate::token::KeyFormat;
use std::time::Duration;
use twinbox_core::limits::bounded;

/// The share of a key's window, in percent, that is left for the call itself and for clocks that differ.
const MARGIN_PERCENT: u32 = 10;

/// Where a request carries its idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// In a header.
    Header(&'static str),
    /// In a member of the JSON body, by its JSON pointer (RFC 6901). Members on the way are made if they are
    /// missing.
    Body(&'static str),
    /// Nowhere: the vendor knows no keys.
    Nowhere,
}

/// The way of the dispatcher when it does not know whether the vendor acted: after a crash, a time-out or a
/// lost connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Sends the request again with the same key, for the vendor acts once for each key. Only while the
    /// vendor surely knows the key: for nine tenths of `window` from the first send. After that it looks
    /// the effect up, if the vendor can do that, and else a person has to.
    NativeKey {
        /// How long the vendor remembers a key at least.
        window: Duration,
    },
    /// Looks the effect up at the vendor, and sends it again only if the vendor did nothing.
    LookUp {
        /// How long to wait after a send. An earlier try must not act later than this.
        after: Duration,
    },
    /// Leaves it to a person: the effect is [unknown](crate::EffectState::Unknown).
    Operator,
    /// Sends the request again. The vendor may act twice.
    AtLeastOnce,
    /// Never sends the request again: the effect has [failed](crate::EffectState::Failed). The vendor may
    /// have acted.
    AtMostOnce,
}

impl Recovery {
    /// How long a key may be sent after its first send.
    pub(crate) fn key_window(self) -> Option<Duration> {
        match self {
            Self::NativeKey { window } => {
                let window = bounded(window);
                Some(window - window * MARGIN_PERCENT / 100)
            }
            _ => None,
        }
    }

    /// Whether the dispatcher may note a send ahead of it: a crash in between is then a send like any other.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(self, Self::NativeKey { .. } | Self::AtLeastOnce)
    }
}

/// How to recognize an answer: its status, and a text in its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign {
    /// The status of the response.
    pub status: u16,
    /// A text in the body. Empty: any body.
    pub text: &'static str,
}

impl Sign {
    pub(crate) fn is_of(&self, status: u16, body: &[u8]) -> bool {
        let text = self.text.as_bytes();
        self.status == status && (text.is_empty() || body.windows(text.len()).any(|part| part == text))
    }
}

/// The promises of a vendor about repeated calls, and how to read its answers.
///
/// [`profiles`](crate::profiles) has those of known vendors. Change a copy for a vendor or an operation that
/// differs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VendorProfile {
    /// The name of the profile.
    pub name: &'static str,
    /// Where a request carries its key.
    pub key: KeyPlace,
    /// How the vendor takes keys.
    pub format: KeyFormat,
    /// The way when it is not known whether the vendor acted.
    pub recovery: Recovery,
    /// The response header that says `true` or `false` about another try.
    pub retry_hint: Option<&'static str>,
    /// The response header that says `true` when an earlier answer is repeated.
    pub replayed: Option<&'static str>,
    /// Whether the vendor repeats a failure of its own for the same key. Another try cannot help then.
    pub keeps_failures: bool,
    /// Statuses besides 429 and 5xx after which another try may help.
    pub retryable: &'static [u16],
    /// Answers to a key whose first request is under way.
    pub in_progress: &'static [Sign],
    /// Answers to a key whose first request has succeeded.
    pub duplicates: &'static [Sign],
    /// Answers to a key that was used for another request.
    pub mismatches: &'static [Sign],
    /// The JSON pointer to the vendor's name for what it made.
    pub reference: Option<&'static str>,
    /// Where the vendor documents it.
    pub sources: &'static [&'static str],
    /// When the sources were read.
    pub as_of: &'static str,
    /// Whether the sources are the vendor's own.
    pub is_verified: bool,
}

impl VendorProfile {
    /// Creates a profile for a vendor without keys.
    pub const fn new(name: &'static str, recovery: Recovery) -> Self {
        Self {
            name,
            key: KeyPlace::Nowhere,
            format: KeyFormat::Uuid36,
            recovery,
            retry_hint: None,
            replayed: None,
            keeps_failures: false,
            retryable: &[],
            in_progress: &[],
            duplicates: &[],
            mismatches: &[],
            reference: None,
            sources: &[],
            as_of: "",
            is_verified: false,
        }
    }

    /// Creates a profile for a vendor that remembers keys for `window`, which it takes in the header
    /// `Idempotency-Key`.
    pub const fn with_key(name: &'static str, window: Duration) -> Self {
        Self { key: KeyPlace::Header("Idempotency-Key"), ..Self::new(name, Recovery::NativeKey { window }) }
    }

    /// Returns the profile with another way of recovery.
    #[must_use]
    pub const fn recovery(self, recovery: Recovery) -> Self {
        Self { recovery, ..self }
    }
}
