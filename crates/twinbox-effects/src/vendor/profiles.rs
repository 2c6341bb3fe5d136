//! The profiles of known vendors.
//!
//! A vendor changes its rules without asking. Each profile names its sources and when they were read. One
//! that is not verified found no word of the vendor: it trusts no key.
use super::profile::{KeyPlace, Recovery, Sign, VendorProfile};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// How long an earlier try may still act, where no vendor says.
const SETTLED: Duration = Duration::from_secs(60);
const AS_OF: &str = "2026-11-24";

/// Stripe, API v1: keys live for at least 24 hours, and a failure of Stripe's is repeated for its key.
pub const STRIPE_V1: VendorProfile = VendorProfile {
    retry_hint: Some("stripe-should-retry"),
    replayed: Some("idempotent-replayed"),
    keeps_failures: true,
    in_progress: &[Sign { status: 409, text: "" }],
    mismatches: &[Sign { status: 400, text: "idempotency_error" }],
    reference: Some("/id"),
    sources: &["https://docs.stripe.com/api/idempotent_requests"],
    as_of: AS_OF,
    is_verified: true,
    ..VendorProfile::with_key("stripe_v1", HOUR.saturating_mul(24))
};

/// Stripe, API v2: keys live for 30 days, and a failed request is tried anew.
pub const STRIPE_V2: VendorProfile = VendorProfile {
    name: "stripe_v2",
    keeps_failures: false,
    recovery: Recovery::NativeKey { window: HOUR.saturating_mul(30 * 24) },
    sources: &["https://docs.stripe.com/api-v2-overview"],
    ..STRIPE_V1
};

/// PayPal. How long a key lives is documented for each API; the shortest is taken: 6 hours for orders.
pub const PAYPAL: VendorProfile = VendorProfile {
    key: KeyPlace::Header("PayPal-Request-Id"),
    retryable: &[408],
    in_progress: &[Sign { status: 409, text: "" }],
    mismatches: &[Sign { status: 422, text: "PAYPAL_REQUEST_ID" }],
    reference: Some("/id"),
    sources: &[
        "https://developer.paypal.com/api/rest/reference/idempotency",
        "https://developer.paypal.com/docs/api/orders/v2/",
    ],
    as_of: AS_OF,
    is_verified: true,
    ..VendorProfile::with_key("paypal", HOUR.saturating_mul(6))
};

/// Resend: keys live for 24 hours.
pub const RESEND: VendorProfile = VendorProfile {
    in_progress: &[Sign { status: 409, text: "concurrent_idempotent_requests" }],
    mismatches: &[Sign { status: 409, text: "invalid_idempotent_request" }],
    reference: Some("/id"),
    sources: &["https://resend.com/docs/dashboard/emails/idempotency-keys"],
    as_of: AS_OF,
    is_verified: true,
    ..VendorProfile::with_key("resend", HOUR.saturating_mul(24))
};

/// Brevo: one of its pages says that keys live for 15 minutes, the other says 30. The key is part of the
/// body, and a known one is refused as a duplicate parameter.
pub const BREVO: VendorProfile = VendorProfile {
    key: KeyPlace::Body("/headers/idempotencyKey"),
    duplicates: &[Sign { status: 400, text: "duplicate_parameter" }],
    reference: Some("/messageId"),
    sources: &[
        "https://developers.brevo.com/changelog/email-api-now-supports-idempotency",
        "https://developers.brevo.com/docs/heterogenous-versions-batch-emails",
    ],
    as_of: AS_OF,
    is_verified: true,
    ..VendorProfile::with_key("brevo", Duration::from_secs(15 * 60))
};

/// Postmark: no key was found in its documents. A mail may come twice.
pub const POSTMARK: VendorProfile = VendorProfile {
    reference: Some("/MessageID"),
    sources: &["https://postmarkapp.com/developer/api/email-api"],
    as_of: AS_OF,
    ..VendorProfile::new("postmark", Recovery::AtLeastOnce)
};

/// Twilio: no key was found in its documents. A person has to look, or a look-up.
pub const TWILIO: VendorProfile = VendorProfile {
    reference: Some("/sid"),
    sources: &["https://www.twilio.com/docs/messaging/api/message-resource"],
    as_of: AS_OF,
    ..VendorProfile::new("twilio", Recovery::Operator)
};

/// SendGrid: it removes no duplicates. A mail may come twice.
pub const SENDGRID: VendorProfile = VendorProfile {
    sources: &["https://www.twilio.com/docs/sendgrid/api-reference/mail-send"],
    as_of: AS_OF,
    ..VendorProfile::new("sendgrid", Recovery::AtLeastOnce)
};

/// BigCommerce: no key was found in its documents. The effect is looked up by a reference of yours.
pub const BIGCOMMERCE: VendorProfile = VendorProfile {
    reference: Some("/data/id"),
    sources: &["https://developer.bigcommerce.com/docs/rest-management"],
    as_of: AS_OF,
    ..VendorProfile::new("bigcommerce", Recovery::LookUp { after: SETTLED })
};

/// All profiles, for documents and for configuration by name.
pub const ALL: [&VendorProfile; 9] =
    [&STRIPE_V1, &STRIPE_V2, &PAYPAL, &RESEND, &BREVO, &POSTMARK, &TWILIO, &SENDGRID, &BIGCOMMERCE];
