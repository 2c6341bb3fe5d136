//! The credential of a vendor.
use crate::{config::ConfigError, https::HttpsService};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request};
use std::{
    io,
    path::{Path, PathBuf},
    str::FromStr as _,
    task::{Context, Poll},
};
use tower::Service;
use twinbox_effects::{Response, SendError};

/// A header whose value a file holds.
#[derive(Clone)]
pub(crate) struct Credential {
    header: HeaderName,
    file: PathBuf,
}

impl Credential {
    pub(super) fn new(header: &str, file: &Path) -> Result<Self, ConfigError> {
        let refuse = |_| ConfigError::new(format!("`credential_header` is no HTTP header: {header:?}"));
        Ok(Self { header: HeaderName::from_str(header).map_err(refuse)?, file: file.to_owned() })
    }

    async fn read(&self) -> io::Result<HeaderValue> {
        let text = tokio::fs::read_to_string(&self.file).await?;
        let mut value = HeaderValue::from_str(text.trim_end()).map_err(io::Error::other)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Sends requests with the credential that its file holds at the time. A request whose credential cannot be
/// read is not sent.
#[derive(Clone)]
pub(crate) struct HttpsWithCredential {
    https: HttpsService,
    credential: Option<Credential>,
}

impl HttpsWithCredential {
    pub(super) fn new(https: HttpsService, credential: Option<Credential>) -> Self {
        Self { https, credential }
    }
}

impl Service<Request<Bytes>> for HttpsWithCredential {
    type Response = Response;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Response, SendError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Bytes>) -> Self::Future {
        let Some(credential) = self.credential.clone() else { return self.https.call(request) };
        let mut https = self.https.clone();
        Box::pin(async move {
            let value = credential.read().await.map_err(|error| {
                SendError::not_sent(format!(
                    "cannot read `credential_file` {}: {error}",
                    credential.file.display()
                ))
            })?;
            request.headers_mut().insert(credential.header, value);
            https.call(request).await
        })
    }
}
