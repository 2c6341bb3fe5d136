//! Sends the requests to the collector.
use crate::{failure::Failure, https::HttpsService};
use futures::future::BoxFuture;
use http::{Request, Response};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use std::{fmt, io, time::Duration};
use tokio::{runtime::Handle, time::timeout};
use tower::Service as _;
use twinbox_core::task_name::TaskName;

/// How long the collector may take to respond.
const RESPONSE_MAX: Duration = Duration::from_secs(10);

/// A client for threads outside of the runtime: the runtime sends what they ask for.
#[derive(Clone)]
pub(super) struct CollectorClient {
    https: HttpsService,
    runtime: Handle,
}

impl CollectorClient {
    /// # Errors
    /// The certificates of the system cannot be read.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { https: HttpsService::new()?, runtime: Handle::current() })
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'c, 'sent>(
        &'c self,
        request: Request<Bytes>,
    ) -> BoxFuture<'sent, Result<Response<Bytes>, HttpError>>
    where
        'c: 'sent,
        Self: 'sent,
    {
        let mut https = self.https.clone();
        let sent = async move { Ok::<_, Failure>(timeout(RESPONSE_MAX, https.call(request)).await??) };
        let sent = self.runtime.spawn(TaskName::OtlpRequest.of(sent));
        Box::pin(async {
            let response = sent.await??;
            let mut answer = Response::new(response.body);
            *answer.status_mut() = response.status.try_into()?;
            *answer.headers_mut() = response.headers;
            Ok(answer)
        })
    }
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorClient").finish_non_exhaustive()
    }
}
