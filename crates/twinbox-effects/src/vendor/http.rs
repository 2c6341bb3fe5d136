//! Vendors that are called by HTTP.
use super::{
    Applied, ErrorCode, LookUp, Response, Vendor, VendorCall, VendorError, VendorProfile, base_url, is_path,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header::CONTENT_TYPE};
use std::{error::Error as StdError, fmt, str::FromStr as _};
use tower::{Service, ServiceExt as _};
use twinbox_core::{BoxError, BoxFuture};
use twinbox_sql::{Error, ErrorKind};

/// The error of a service that sends requests.
#[derive(Debug)]
pub struct SendError {
    was_sent: bool,
    source: BoxError,
}

impl SendError {
    /// Creates an error of a request of which the vendor got nothing, such as a refused connection.
    pub fn not_sent(source: impl Into<BoxError>) -> Self {
        Self { was_sent: false, source: source.into() }
    }

    /// Creates an error of a request that may have reached the vendor.
    pub fn maybe_sent(source: impl Into<BoxError>) -> Self {
        Self { was_sent: true, source: source.into() }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.was_sent { "the connection was lost" } else { "there was no connection" })
    }
}

impl StdError for SendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl From<SendError> for VendorError {
    fn from(error: SendError) -> Self {
        let new = if error.was_sent { Self::maybe_applied } else { Self::not_sent };
        new(ErrorCode::Transient, error.to_string()).with_source(error)
    }
}

type LookUpFn = dyn for<'a> Fn(&'a VendorCall) -> BoxFuture<'a, Result<LookUp, VendorError>> + Send + Sync;

/// A vendor that is called by HTTP, with any service of `tower` that sends requests.
///
/// The service must not follow redirects and not try again by itself.
/// [`ReqwestService`](super::ReqwestService) does neither.
pub struct HttpVendor<S> {
    name: String,
    profile: VendorProfile,
    base_url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    service: S,
    look_up: Option<Box<LookUpFn>>,
}

impl<S> HttpVendor<S> {
    /// Creates the vendor that effects choose by `name`. Their targets follow `base_url`.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the base URL is not absolute, or is not `https` and leads to another
    /// machine than this one.
    pub fn new(
        name: impl Into<String>,
        profile: VendorProfile,
        base_url: impl Into<String>,
        service: S,
    ) -> Result<Self, Error> {
        Ok(Self::with_base_url(name.into(), profile, self::base_url(base_url.into(), false)?, service))
    }

    /// Creates the vendor as [`new`](Self::new) does, also where requests leave this machine without TLS,
    /// such as in a network that encrypts by itself.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the base URL is not absolute.
    pub fn plain(
        name: impl Into<String>,
        profile: VendorProfile,
        base_url: impl Into<String>,
        service: S,
    ) -> Result<Self, Error> {
        Ok(Self::with_base_url(name.into(), profile, self::base_url(base_url.into(), true)?, service))
    }

    fn with_base_url(name: String, profile: VendorProfile, base_url: String, service: S) -> Self {
        Self { name, profile, base_url, headers: Vec::new(), service, look_up: None }
    }

    /// Adds a header to each request, such as credentials. Its value appears in no log and no row.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: it is no HTTP header.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let (Ok(name), Ok(mut value)) = (HeaderName::from_str(name), HeaderValue::from_str(value)) else {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!("the header {name:?} is no HTTP header"),
            ));
        };
        value.set_sensitive(true);
        self.headers.push((name, value));
        Ok(self)
    }

    /// Sets how the vendor is asked whether an earlier try has acted: by the effect's id, if the request
    /// holds it, or by another reference of yours.
    #[must_use]
    pub fn look_up(
        self,
        look_up: impl for<'a> Fn(&'a VendorCall) -> BoxFuture<'a, Result<LookUp, VendorError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { look_up: Some(Box::new(look_up)), ..self }
    }

    /// Makes the HTTP request of an effect.
    fn request(&self, call: &VendorCall) -> Result<Request<Bytes>, VendorError> {
        let refuse = |what: &str| VendorError::not_sent(ErrorCode::Validation, what);
        let request = &call.effect.request;
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|_| refuse("no HTTP method"))?;
        let uri: Uri = format!("{}{}", self.base_url, request.target)
            .parse()
            .map_err(|_| refuse("the target is no path of a URL"))?;
        if !is_path(&request.target) {
            return Err(refuse(
                "the target does not stay behind the base URL: it begins with / or ?, and no segment is `..`",
            ));
        }
        let mut http = Request::new(request.body.clone());
        (*http.method_mut(), *http.uri_mut()) = (method, uri);
        let headers = http.headers_mut();
        let mut put = |name: &str, value: &str| {
            let (name, value) = (HeaderName::from_str(name).ok()?, HeaderValue::from_str(value).ok()?);
            headers.insert(name, value);
            Some(())
        };
        let mut all = vec![(CONTENT_TYPE.as_str(), request.content_type.as_str())];
        all.extend(request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        all.extend(call.effect.traceparent.as_deref().map(|trace| ("traceparent", trace)));
        for (name, value) in all {
            put(name, value).ok_or_else(|| refuse("a header cannot be sent"))?;
        }
        self.profile.place(&call.token, &mut http)?;
        for (name, value) in &self.headers {
            http.headers_mut().insert(name, value.clone());
        }
        Ok(http)
    }
}

impl<S> Vendor for HttpVendor<S>
where
    S: Service<Request<Bytes>, Response = Response, Error = SendError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn profile(&self) -> &VendorProfile {
        &self.profile
    }

    fn send<'a>(&'a self, call: &'a VendorCall) -> BoxFuture<'a, Result<Applied, VendorError>> {
        Box::pin(async {
            let request = self.request(call)?;
            let response = self.service.clone().oneshot(request).await?;
            self.profile.read(&response)
        })
    }

    fn can_look_up(&self) -> bool {
        self.look_up.is_some()
    }

    fn look_up<'a>(&'a self, call: &'a VendorCall) -> BoxFuture<'a, Result<LookUp, VendorError>> {
        match &self.look_up {
            Some(look_up) => look_up(call),
            None => Box::pin(async {
                Err(VendorError::maybe_applied(ErrorCode::Indeterminate, "the vendor has no look-up"))
            }),
        }
    }
}

/// Without the values of its headers, which may be credentials.
impl<S> fmt::Debug for HttpVendor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpVendor")
            .field("name", &self.name)
            .field("profile", &self.profile.name)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}
