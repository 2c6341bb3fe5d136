//! The columns to which the request of a side effect is bound.
use crate::text::headers;
use twinbox_core::{PayloadContext, PayloadPurpose};
use uuid::Uuid;

/// The columns of a side effect that are its request, and decide where that goes.
///
/// The others say how far the sending has come, and to what the effect belongs.
#[derive(Debug, Clone, Copy)]
pub struct EffectColumns<'a> {
    /// The message, operation or row that wants the act.
    pub source_id: Uuid,
    /// The kind of act. With the source it is the id of the effect.
    pub kind: &'a str,
    /// The vendor that gets the request.
    pub vendor: &'a str,
    /// The key by which effects are sent in order.
    pub key: Option<&'a str>,
    /// The HTTP method.
    pub method: &'a str,
    /// The path and the query.
    pub target: &'a str,
    /// The media type of the body.
    pub content_type: &'a str,
    /// The headers, as they are sent.
    pub headers: &'a [(String, String)],
}

impl<'a> EffectColumns<'a> {
    /// Returns what the body of the request is bound to.
    pub fn context(&self, service: &'a str) -> PayloadContext<'a> {
        PayloadContext::new(PayloadPurpose::SideEffect, service, self.key)
            .bind("source_id", Some(self.source_id.as_bytes().to_vec()))
            .bind("kind", Some(self.kind.as_bytes()))
            .bind("vendor", Some(self.vendor.as_bytes()))
            .bind("key", self.key.map(str::as_bytes))
            .bind("method", Some(self.method.as_bytes()))
            .bind("target", Some(self.target.as_bytes()))
            .bind("content_type", Some(self.content_type.as_bytes()))
            .bind("headers", headers(self.headers).map(String::into_bytes))
    }
}
