//! A key as it is stored.
use super::{
    codec,
    compare::Comparison,
    key::OperationKey,
    response::{OperationResponse, ResponseBody},
};
use crate::{
    Dialect, Error, catalog::Catalog, codecs::Codecs, row::TextColumns, statement::query, text::text,
};
use sqlx::Row as _;
use twinbox_core::FingerprintInput;

/// The row of a key.
pub(super) struct StoredKey {
    /// How its hash was made.
    pub(super) hash_alg: String,
    request_hash: Vec<u8>,
    principal: String,
    pub(super) has_expired: bool,
    /// None: the operation has not ended.
    pub(super) response: Option<EncodedResponse>,
}

/// A response with its body as a codec encoded it.
pub(super) struct EncodedResponse {
    response: OperationResponse,
    codec_headers: Option<String>,
}

impl EncodedResponse {
    pub(super) fn decode(self, codecs: &Codecs, slot: &[u8; 32]) -> Result<OperationResponse, Error> {
        let Self { mut response, codec_headers } = self;
        if let ResponseBody::Inline(body) = &mut response.body {
            *body = codec::decode(codecs, slot, std::mem::take(body), codec_headers)?;
        }
        Ok(response)
    }
}

impl StoredKey {
    /// The comparison that the key was taken with, perhaps by an earlier release. It counts, so that a
    /// deployment makes no retry a mismatch.
    pub(super) fn comparison(&self) -> Option<Comparison<'static>> {
        Comparison::stored(&self.hash_alg)
    }

    /// Whether the key was taken for this request.
    pub(super) fn is_of(&self, key: &OperationKey, request: FingerprintInput<'_>) -> bool {
        let compared = self.comparison().map(|comparison| comparison.of(request));
        // The slot of a key that is not shared tells the principal, whose name may be erased.
        let is_erased = self.principal.is_empty() && !key.is_shared;
        (is_erased || text(&key.principal) == self.principal)
            && compared.is_some_and(|(fingerprint, name)| {
                name == self.hash_alg && fingerprint.digest()[..] == self.request_hash[..]
            })
    }
}

pub(super) async fn find<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    slot: &[u8; 32],
) -> Result<Option<StoredKey>, Error> {
    let row = query::<DB>(&catalog.sql.operations.find).bind(slot.to_vec()).fetch_optional(conn).await?;
    let Some(row) = row else { return Ok(None) };
    let (status, kind): (String, String) = (row.text("status")?, row.text("body_kind")?);
    let body = match &*kind {
        "inline" => ResponseBody::Inline(row.try_get::<Option<_>, _>("response_body")?.unwrap_or_default()),
        "ref" => ResponseBody::Reference(row.text_or_null("result_ref")?.unwrap_or_default()),
        _ => ResponseBody::Omitted,
    };
    let code: Option<i64> = row.try_get("http_code")?;
    let response = OperationResponse {
        code: code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
        headers: row.try_get::<Option<_>, _>("response_headers")?.unwrap_or_default(),
        body,
        is_failure: status == "failed",
    };
    let codec_headers = row.text_or_null("codec_headers")?;
    Ok(Some(StoredKey {
        request_hash: row.try_get("request_hash")?,
        hash_alg: row.text("hash_alg")?,
        principal: row.text("principal")?,
        has_expired: row.try_get("has_expired")?,
        response: (status != "pending").then_some(EncodedResponse { response, codec_headers }),
    }))
}
