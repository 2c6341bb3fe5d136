//! Vendors: what each one promises, how its answers are read, and how it is called.
mod answer;
mod code;
mod error;
mod http;
mod place;
mod profile;
pub mod profiles;
mod retry_after;
mod target;
#[cfg(feature = "reqwest")]
mod with_reqwest;

pub use answer::Response;
pub use code::ErrorCode;
pub use error::{Certainty, VendorError};
pub use http::{HttpVendor, SendError};
pub use profile::{KeyPlace, Recovery, Sign, VendorProfile};
pub(crate) use retry_after::retry_after;
pub(crate) use target::{base_url, is_path};
#[cfg(feature = "reqwest")]
pub use with_reqwest::ReqwestService;

use crate::{request::kind_base, side_effect::SideEffect};
use twinbox_core::BoxFuture;

/// An answer of a vendor that acted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The vendor's name for what it made.
    pub provider_ref: Option<String>,
    /// Whether an earlier try had done it, as the vendor says.
    pub is_duplicate: bool,
    /// The status of the response, for a vendor that is called by HTTP.
    pub http_code: Option<u16>,
}

impl Applied {
    /// Creates an answer without a reference.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the vendor's name for what it made.
    #[must_use]
    pub fn provider_ref(self, provider_ref: impl Into<String>) -> Self {
        Self { provider_ref: Some(provider_ref.into()), ..self }
    }

    /// Says that an earlier try had done it.
    #[must_use]
    pub fn duplicate(self) -> Self {
        Self { is_duplicate: true, ..self }
    }
}

/// The result of looking an effect up at its vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookUp {
    /// The vendor acted.
    Applied(Applied),
    /// The vendor did nothing, and no earlier try can act any more.
    NotApplied,
}

/// One call of a vendor.
#[derive(Debug)]
#[non_exhaustive]
pub struct VendorCall {
    /// The effect, with its request.
    pub effect: SideEffect,
    /// The idempotency key, in the format of the vendor. All tries of a generation send the same.
    pub token: String,
}

/// A vendor that a dispatcher sends effects to.
///
/// [`HttpVendor`] calls one by HTTP. Implement it for anything else, such as an SDK or SMTP.
pub trait Vendor: Send + Sync + 'static {
    /// Returns the name by which requests of effects choose this vendor.
    fn name(&self) -> &str;

    /// Returns what the vendor promises about repeated calls.
    fn profile(&self) -> &VendorProfile;

    /// Returns what an effect shares a circuit breaker with: by default the effects of its kind without the
    /// qualifier. A vendor of many independent receivers returns the receiver.
    fn operation<'a>(&self, effect: &'a SideEffect) -> &'a str {
        kind_base(&effect.kind)
    }

    /// Returns whether a pause that the vendor asks for holds for all of its operations, which is the
    /// default, or only for the operation.
    fn pauses_as_one(&self) -> bool {
        true
    }

    /// Sends an effect once. The dispatcher drops the future when it takes too long, and then takes it that
    /// the vendor may have acted.
    ///
    /// # Errors
    /// Whether the vendor may have acted, and whether another try can help.
    fn send<'a>(&'a self, call: &'a VendorCall) -> BoxFuture<'a, Result<Applied, VendorError>>;

    /// Returns whether [`look_up`](Self::look_up) can tell what the vendor did.
    fn can_look_up(&self) -> bool {
        false
    }

    /// Asks the vendor whether an earlier try has acted.
    ///
    /// # Errors
    /// The vendor could not be asked, or does not know.
    fn look_up<'a>(&'a self, call: &'a VendorCall) -> BoxFuture<'a, Result<LookUp, VendorError>> {
        let _ = call;
        Box::pin(async { Err(VendorError::maybe_applied(ErrorCode::Indeterminate, "there is no look-up")) })
    }
}
