//! The credential of a vendor.
use crate::{
    config::{ConfigError, secret},
    https::HttpsService,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request};
use std::{
    io,
    path::{Path, PathBuf},
    str::FromStr as _,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tower::Service;
use twinbox_effects::{Response, SendError};

/// A header whose value a file holds.
#[derive(Clone)]
pub(crate) struct Credential {
    header: HeaderName,
    file: PathBuf,
    last: Arc<Mutex<Last>>,
}

struct Last {
    value: HeaderValue,
    /// Whether the file was unfit when it was read last.
    is_unfit: bool,
}

impl Credential {
    pub(super) fn new(header: &str, file: &Path) -> Result<Self, ConfigError> {
        let refuse = |_| ConfigError::new(format!("`credential_header` is no HTTP header: {header:?}"));
        let unfit =
            |_| ConfigError::new(format!("`credential_file` {} holds no value of a header", file.display()));
        let value = value(&secret("credential", None, Some(file))?).map_err(unfit)?;
        let header = HeaderName::from_str(header).map_err(refuse)?;
        let last = Arc::new(Mutex::new(Last { value, is_unfit: false }));
        Ok(Self { header, file: file.to_owned(), last })
    }

    /// Returns the value in the file. While the file is missing or unfit, it returns the last value, and logs
    /// that once.
    async fn read(&self) -> HeaderValue {
        let text = tokio::fs::read_to_string(&self.file).await;
        let read = text.and_then(|text| value(&text).map_err(io::Error::other));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let was_unfit = std::mem::replace(&mut last.is_unfit, read.is_err());
        match read {
            Ok(value) => last.value = value,
            Err(error) if !was_unfit => {
                let file = self.file.display();
                tracing::warn!(%file, %error, "a vendor gets the last credential: its file is unfit");
            }
            Err(_) => {}
        }
        last.value.clone()
    }
}

fn value(text: &str) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(text.trim_end())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Sends requests with the credential that its file holds at the time.
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
            request.headers_mut().insert(credential.header.clone(), credential.read().await);
            https.call(request).await
        })
    }
}
