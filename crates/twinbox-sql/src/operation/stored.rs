//! A key as it is stored.
use super::{
    codec::{self, ResponseKey},
    compare::Comparison,
    digest::RequestDigest,
    key::OperationKey,
    response::{OperationResponse, ResponseBody},
};
use crate::{Dialect, Error, catalog::Catalog, row::TextColumns, statement::query, text::text};
use sqlx::Row as _;

/// The row of a key.
pub(super) struct StoredKey {
    /// How its hash was made.
    pub(super) hash_alg: String,
    request_hash: Vec<u8>,
    principal: String,
    pub(super) has_expired: bool,
    /// An operation has committed its transaction by itself, and has no response.
    pub(super) is_left_open: bool,
    /// None: the operation has not ended.
    pub(super) response: Option<EncodedResponse>,
}

/// A response with its body as a codec encoded it.
pub(super) struct EncodedResponse {
    key: ResponseKey,
    response: OperationResponse,
    codec_headers: Option<String>,
}

impl EncodedResponse {
    pub(super) fn decode(self, catalog: &Catalog) -> Result<OperationResponse, Error> {
        let Self { key, mut response, codec_headers } = self;
        if let ResponseBody::Inline(body) = &mut response.body {
            let encoded = std::mem::take(body);
            let body = codec::decode(catalog, &key, &response, encoded, codec_headers)?;
            response.body = ResponseBody::Inline(body);
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
    pub(super) async fn is_of(&self, key: &OperationKey, request: &RequestDigest) -> bool {
        // The slot of a key that is not shared tells the principal, whose name may be erased.
        let is_erased = self.principal.is_empty() && !key.is_shared;
        if !is_erased && text(&key.principal) != self.principal {
            return false;
        }
        let Some(comparison) = self.comparison() else { return false };
        let (fingerprint, name) = comparison.of(request).await;
        name == self.hash_alg && fingerprint.digest()[..] == self.request_hash[..]
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
    let (codec_headers, principal) = (row.text_or_null("codec_headers")?, row.text("principal")?);
    let key = ResponseKey { slot: *slot, principal: principal.clone() };
    Ok(Some(StoredKey {
        request_hash: row.try_get("request_hash")?,
        hash_alg: row.text("hash_alg")?,
        principal,
        has_expired: row.try_get("has_expired")?,
        is_left_open: row.try_get("is_left_open")?,
        response: (status != "pending").then_some(EncodedResponse { key, response, codec_headers }),
    }))
}
