//! A side effect as it is stored.
use crate::{request::EffectRequest, token::effect_id};
use sqlx::Row as _;
use std::{fmt, str::FromStr};
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    engine::{
        Catalog, EffectColumns, Micros, decode_bytes, encode_bytes, optional_text, read_headers, small_count,
    },
};
use uuid::Uuid;

/// The state of a side effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EffectState {
    /// The vendor has done nothing yet.
    Pending,
    /// The send was committed, and no answer is known. The vendor may have acted, or the request was never
    /// sent.
    Fired,
    /// The vendor acted.
    Confirmed,
    /// Nobody knows whether the vendor acted, and no further try is safe. A person has to look.
    Unknown,
    /// The dispatcher gave up. The vendor did nothing, or may have acted if the code is
    /// `PROVIDER.indeterminate`.
    Failed,
    /// The vendor acted, and another effect has undone it.
    Compensated,
}

impl EffectState {
    const ALL: [Self; 6] =
        [Self::Pending, Self::Fired, Self::Confirmed, Self::Unknown, Self::Failed, Self::Compensated];

    /// Returns the word for this state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Fired => "fired",
            Self::Confirmed => "confirmed",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
            Self::Compensated => "compensated",
        }
    }
}

impl fmt::Display for EffectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EffectState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join("`, `");
            format!("no state {text:?}: write one of `{all}`")
        })
    }
}

/// A side effect: what it is planned for, its request, and what became of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SideEffect {
    /// The number of its row. Operators name it by this number.
    pub position: i64,
    /// The id that is derived from the source and the kind.
    pub id: Uuid,
    /// The message, operation or row that wants the act.
    pub source_id: Uuid,
    /// The kind of act: `base` or `base:qualifier`.
    pub kind: String,
    /// The present state.
    pub state: EffectState,
    /// The request, as it was planned.
    pub request: EffectRequest,
    /// The correlation id of the delivery or the request that planned it.
    pub correlation_id: Option<String>,
    /// The W3C trace context in which it was planned.
    pub traceparent: Option<String>,
    /// The position of the effect that this one undoes.
    pub compensates: Option<i64>,
    /// Counts the keys for the vendor. It grows only after it is known that the vendor did nothing.
    pub generation: u32,
    /// The key for the vendor. `None`: this generation was never sent.
    pub idempotency_key: Option<String>,
    /// Until when the vendor surely knows the key.
    pub provider_key_expires_at: Option<Timestamp>,
    /// How often the request was sent.
    pub attempts: u32,
    /// How many of these sends failed.
    pub failures: u32,
    /// The process that sends it now.
    pub owner: Option<Uuid>,
    /// When a dispatcher looks at it next.
    pub next_attempt_at: Option<Timestamp>,
    /// When it was first sent.
    pub first_fired_at: Option<Timestamp>,
    /// When it was last sent.
    pub fired_at: Option<Timestamp>,
    /// When it was confirmed, failed or compensated.
    pub ended_at: Option<Timestamp>,
    /// The vendor's name for what it made.
    pub provider_ref: Option<String>,
    /// The status of the last response.
    pub http_code: Option<u16>,
    /// The code of the last error.
    pub error_code: Option<String>,
    /// The text of the last error.
    pub last_error: Option<String>,
    /// When it was planned.
    pub created_at: Timestamp,
}

const WHAT: &str = "the request of a side effect";

/// The columns to which the body of a request is bound.
fn columns<'a>(source_id: Uuid, kind: &'a str, request: &'a EffectRequest) -> EffectColumns<'a> {
    EffectColumns {
        source_id,
        kind,
        vendor: &request.vendor,
        key: request.key.as_deref(),
        method: &request.method,
        target: &request.target,
        content_type: &request.content_type,
        headers: &request.headers,
    }
}

/// Encodes the body of a request, and returns the headers that a codec needs to decode it.
pub(crate) fn encode(
    catalog: &Catalog,
    source_id: Uuid,
    kind: &str,
    request: &EffectRequest,
) -> Result<(Vec<u8>, Option<String>), Error> {
    let context = columns(source_id, kind, request).context(&catalog.service);
    encode_bytes(&catalog.codecs, &context, &request.body, WHAT)
}

/// An effect whose request is as it is stored, encoded or not.
pub(crate) struct StoredEffect {
    pub(crate) effect: SideEffect,
    codec_headers: Option<String>,
}

impl StoredEffect {
    /// Decodes the request.
    ///
    /// # Errors
    /// The store lacks its codec, or the codec refused; or the request is not encoded, and the store requires
    /// that.
    pub(crate) fn decode(self, catalog: &Catalog) -> Result<SideEffect, Error> {
        let Self { mut effect, codec_headers } = self;
        let encoded = effect.request.body.to_vec();
        let columns = columns(effect.source_id, &effect.kind, &effect.request);
        let body =
            decode_bytes(&catalog.codecs, &columns.context(&catalog.service), encoded, codec_headers, WHAT)?;
        effect.request.body = body.into();
        Ok(effect)
    }
}

/// Reads an effect. A row that another program wrote is read as it is; what cannot be sent is found when it
/// is sent.
pub(crate) fn read<DB: Dialect>(row: &DB::Row) -> Result<StoredEffect, Error> {
    let text = |name| Ok::<_, Error>(optional_text::<DB>(row, name)?.unwrap_or_default());
    let time = |name| Ok::<_, Error>(row.try_get::<Option<Micros>, _>(name)?.map(|at| at.0));
    let count = |name| Ok::<_, Error>(small_count(row.try_get(name)?));
    let (source_id, kind) = (row.try_get::<Uuid, _>("source_id")?, text("kind")?);
    let headers = optional_text::<DB>(row, "headers")?;
    let effect = SideEffect {
        position: row.try_get("position")?,
        id: effect_id(source_id, &kind),
        source_id,
        state: text("state")?.parse().unwrap_or(EffectState::Unknown),
        request: EffectRequest {
            vendor: text("vendor")?,
            method: text("method")?,
            target: text("target")?,
            content_type: text("content_type")?,
            headers: headers.as_deref().map(read_headers).unwrap_or_default(),
            body: row.try_get::<Vec<u8>, _>("request")?.into(),
            key: optional_text::<DB>(row, "key")?,
        },
        kind,
        correlation_id: optional_text::<DB>(row, "correlation_id")?,
        traceparent: optional_text::<DB>(row, "traceparent")?,
        compensates: row.try_get("compensates")?,
        generation: count("generation")?,
        idempotency_key: optional_text::<DB>(row, "idempotency_key")?,
        provider_key_expires_at: time("provider_key_expires_at")?,
        attempts: count("attempts")?,
        failures: count("failures")?,
        owner: row.try_get("owner")?,
        next_attempt_at: time("next_attempt_at")?,
        first_fired_at: time("first_fired_at")?,
        fired_at: time("fired_at")?,
        ended_at: time("ended_at")?,
        provider_ref: optional_text::<DB>(row, "provider_ref")?,
        http_code: row.try_get::<Option<i64>, _>("http_code")?.and_then(|code| u16::try_from(code).ok()),
        error_code: optional_text::<DB>(row, "error_code")?,
        last_error: optional_text::<DB>(row, "last_error")?,
        created_at: row.try_get::<Micros, _>("created_at")?.0,
    };
    Ok(StoredEffect { effect, codec_headers: optional_text::<DB>(row, "codec_headers")? })
}
