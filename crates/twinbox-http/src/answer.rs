//! Answers as they are kept, and given again.
use crate::{
    disposition::Disposition,
    outcome::{Call, STATUS},
    problem::Problem,
    settings::ResultRef,
    stored,
};
use axum::{
    BoxError,
    body::{Body, HttpBody as _, to_bytes},
    http::{HeaderName, HeaderValue, Response, StatusCode, header, request::Parts},
};
use twinbox_sql::{
    Dialect,
    operation::{Answer, AnswerBody},
};

const BODY: HeaderName = HeaderName::from_static("idempotency-body");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

impl<DB: Dialect> Call<DB> {
    /// What is kept of a response, and the response itself.
    pub(crate) async fn as_answer(
        &self,
        response: Response<Body>,
        disposition: Disposition,
    ) -> Result<(Answer, Response<Body>), BoxError> {
        let (parts, body) = response.into_parts();
        let max = self.settings.answer_max;
        let upper = body.size_hint().upper();
        let is_kept = self.settings.bodies_kept && upper.is_some_and(|bytes| bytes <= max as u64);
        let (kept, body) = if is_kept || upper == Some(0) {
            let bytes = to_bytes(body, max).await?;
            (AnswerBody::Inline(bytes.to_vec()), Body::from(bytes))
        } else {
            let reference = parts.extensions.get::<ResultRef>().map(|ResultRef(name)| name.clone());
            (reference.map_or(AnswerBody::Omitted, AnswerBody::Reference), body)
        };
        let headers = stored::headers(&parts.headers, &self.settings.also_kept);
        let failed = disposition == Disposition::RejectKeep;
        let answer = Answer { code: parts.status.as_u16(), headers, body: kept, failed };
        Ok((answer, Response::from_parts(parts, body)))
    }

    pub(crate) async fn replay(&self, answer: Answer, asking: Option<Parts>) -> Response<Body> {
        let headers = stored::read_headers(&answer.headers);
        let (Some(mut headers), Ok(status)) = (headers, StatusCode::from_u16(answer.code)) else {
            tracing::error!(scope = self.scope, "a stored answer cannot be read");
            return self.refused(Problem::Failed);
        };
        self.count("idempotent.replayed");
        self.settings.rate.replayed(&self.scope);
        self.say("replayed", Some(status), None);
        let is_whole = matches!(answer.body, AnswerBody::Inline(_));
        let rendered = match (&answer.body, &self.settings.render, asking) {
            (AnswerBody::Reference(name), Some(render), Some(asking)) => {
                let rendering = render(ResultRef(name.clone()), asking);
                match tokio::time::timeout(self.settings.time_limit, rendering).await {
                    Ok(rendered) => Some(rendered),
                    Err(_) => return self.refused(Problem::TimedOut),
                }
            }
            _ => None,
        };
        let is_rendered = rendered.is_some();
        if !is_whole {
            // They are of the body that is gone.
            for gone in
                [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::CONTENT_ENCODING, header::ETAG]
            {
                headers.remove(gone);
            }
        }
        let mut response = rendered.unwrap_or_else(|| {
            Response::new(match answer.body {
                AnswerBody::Inline(body) => Body::from(body),
                _ => Body::empty(),
            })
        });
        *response.status_mut() = status;
        let own = response.headers().clone();
        for (name, value) in headers.iter().filter(|(name, _)| !own.contains_key(*name)) {
            response.headers_mut().append(name, value.clone());
        }
        if !is_whole && !is_rendered {
            response.headers_mut().insert(BODY, HeaderValue::from_static("omitted"));
        }
        if self.settings.also_replayed {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response.headers_mut().insert(STATUS, HeaderValue::from_static("replayed"));
        response
    }
}
