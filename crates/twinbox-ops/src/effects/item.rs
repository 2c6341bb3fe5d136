//! A side effect, as an operator sees it.
use super::body::{self, EffectBody};
use sqlx::Row as _;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    engine::{Catalog, EffectColumns, Micros, optional_text, read_headers, small_count},
};
use uuid::Uuid;

/// The code of an effect that failed although its vendor may have acted.
const INDETERMINATE: &str = "PROVIDER.indeterminate";

/// A side effect without its request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectInfo {
    /// The position of the effect's row, by which commands name it.
    pub position: i64,
    /// The id of the effect. None: it was planned in SQL, and no dispatcher has sent it yet.
    pub id: Option<Uuid>,
    /// The message, operation or row that wants the act.
    pub source_id: Uuid,
    /// The purpose of the act: `base` or `base:qualifier`.
    pub kind: String,
    /// The vendor that acts.
    pub vendor: String,
    /// The key by which effects are sent in order.
    pub key: Option<String>,
    /// `pending`, `fired`, `confirmed`, `unknown`, `failed` or `compensated`.
    pub state: String,
    /// The position of the effect that this one undoes.
    pub compensates: Option<i64>,
    /// How often it was found that the vendor did nothing, so that a new key was taken.
    pub generation: u32,
    /// How often the effect was sent.
    pub attempts: u32,
    /// How many of the sends failed, since an operator last changed the effect.
    pub failures: u32,
    /// When a dispatcher looks at the effect next.
    pub next_attempt_at: Option<Timestamp>,
    /// When the effect was last sent.
    pub fired_at: Option<Timestamp>,
    /// When the effect was confirmed, failed or compensated.
    pub ended_at: Option<Timestamp>,
    /// The vendor's name for what it made.
    pub provider_ref: Option<String>,
    /// The status of the vendor's last response.
    pub http_code: Option<u16>,
    /// The code of the last error.
    pub error_code: Option<String>,
    /// The text of the last error, or the note of an operator.
    pub last_error: Option<String>,
    /// When the effect was planned.
    pub created_at: Timestamp,
}

impl EffectInfo {
    /// Returns the kind without its qualifier.
    pub fn kind_base(&self) -> &str {
        self.kind.split_once(':').map_or(&*self.kind, |(base, _)| base)
    }

    /// Returns whether a person has to find out at the vendor if the act was done.
    pub fn is_in_doubt(&self) -> bool {
        self.state == "unknown" || self.state == "failed" && self.error_code.as_deref() == Some(INDETERMINATE)
    }
}

/// A side effect with its request, which holds no credentials: the vendor adds them when it sends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectDetails {
    /// The effect.
    pub effect: EffectInfo,
    /// The HTTP method of the request.
    pub method: String,
    /// The path and the query of the request.
    pub target: String,
    /// The media type of the body.
    pub content_type: String,
    /// The headers of the request.
    pub headers: Vec<(String, String)>,
    /// The body of the request.
    pub body: EffectBody,
    /// The correlation id of the delivery or the request that planned the effect.
    pub correlation_id: Option<String>,
    /// The W3C trace context in which the effect was planned.
    pub traceparent: Option<String>,
    /// The key of the present generation for the vendor. None: this generation was never sent.
    pub idempotency_key: Option<String>,
    /// Until when the vendor surely knows the key.
    pub provider_key_expires_at: Option<Timestamp>,
    /// When the effect was first sent.
    pub first_fired_at: Option<Timestamp>,
    /// The process that sends the effect now.
    pub owner: Option<Uuid>,
}

/// Reads the columns that pages have.
pub(super) fn read<DB: Dialect>(row: &DB::Row) -> Result<EffectInfo, Error> {
    let text = |name| Ok::<_, Error>(optional_text::<DB>(row, name)?.unwrap_or_default());
    let count = |name| Ok::<_, Error>(small_count(row.try_get(name)?));
    Ok(EffectInfo {
        position: row.try_get("position")?,
        id: row.try_get("id")?,
        source_id: row.try_get("source_id")?,
        kind: text("kind")?,
        vendor: text("vendor")?,
        key: optional_text::<DB>(row, "key")?,
        state: text("state")?,
        compensates: row.try_get("compensates")?,
        generation: count("generation")?,
        attempts: count("attempts")?,
        failures: count("failures")?,
        next_attempt_at: time::<DB>(row, "next_attempt_at")?,
        fired_at: time::<DB>(row, "fired_at")?,
        ended_at: time::<DB>(row, "ended_at")?,
        provider_ref: optional_text::<DB>(row, "provider_ref")?,
        http_code: row.try_get::<Option<i64>, _>("http_code")?.and_then(|code| u16::try_from(code).ok()),
        error_code: optional_text::<DB>(row, "error_code")?,
        last_error: optional_text::<DB>(row, "last_error")?,
        created_at: row.try_get::<Micros, _>("created_at")?.0,
    })
}

/// Reads a whole row.
pub(super) fn read_details<DB: Dialect>(catalog: &Catalog, row: &DB::Row) -> Result<EffectDetails, Error> {
    let text = |name| Ok::<_, Error>(optional_text::<DB>(row, name)?.unwrap_or_default());
    let effect = read::<DB>(row)?;
    let (stored, codec_headers) = (row.try_get("request")?, optional_text::<DB>(row, "codec_headers")?);
    let (method, target, content_type) = (text("method")?, text("target")?, text("content_type")?);
    let headers = optional_text::<DB>(row, "headers")?.as_deref().map(read_headers).unwrap_or_default();
    let columns = EffectColumns {
        source_id: effect.source_id,
        kind: &effect.kind,
        vendor: &effect.vendor,
        key: effect.key.as_deref(),
        method: &method,
        target: &target,
        content_type: &content_type,
        headers: &headers,
    };
    Ok(EffectDetails {
        body: body::read(catalog, &columns, stored, codec_headers)?,
        method,
        target,
        content_type,
        headers,
        correlation_id: optional_text::<DB>(row, "correlation_id")?,
        traceparent: optional_text::<DB>(row, "traceparent")?,
        idempotency_key: optional_text::<DB>(row, "idempotency_key")?,
        provider_key_expires_at: time::<DB>(row, "provider_key_expires_at")?,
        first_fired_at: time::<DB>(row, "first_fired_at")?,
        owner: row.try_get("owner")?,
        effect,
    })
}

fn time<DB: Dialect>(row: &DB::Row, name: &str) -> Result<Option<Timestamp>, Error> {
    Ok(row.try_get::<Option<Micros>, _>(name)?.map(|at| at.0))
}
