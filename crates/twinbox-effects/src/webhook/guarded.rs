//! Sends requests to strangers' URLs, and only to addresses that were checked.
use super::egress::{Egress, EgressError};
use crate::vendor::{ReqwestService, Response, SendError};
use bytes::Bytes;
use http::Request;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::{
    error::Error as StdError,
    fmt,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};
use tower::Service;
use twinbox_core::BoxFuture;

/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Sends requests to URLs that strangers have chosen, as far as [`Egress`] allows it.
///
/// Addresses are checked where a connection is made, and the connection goes to the checked address: a name
/// whose address changes in between gains nothing. Redirects are not followed, and proxies of the environment
/// are not used, because a proxy would resolve names by itself.
#[derive(Clone)]
pub struct GuardedService {
    service: ReqwestService,
    egress: Arc<Egress>,
}

impl GuardedService {
    /// Creates a service from the builder of a client, which chooses its TLS. Its proxies, redirects, own
    /// tries and resolver are replaced. Do not give it addresses of names: those are not checked.
    ///
    /// # Errors
    /// The TLS of the client cannot be set up.
    pub fn new(builder: reqwest::ClientBuilder, egress: Egress) -> Result<Self, reqwest::Error> {
        Self::with_resolver(builder, egress, SystemResolver)
    }

    /// Creates a service that resolves names with `resolver`, whose answers are checked.
    ///
    /// # Errors
    /// The TLS of the client cannot be set up.
    pub fn with_resolver(
        builder: reqwest::ClientBuilder,
        egress: Egress,
        resolver: impl Resolve + 'static,
    ) -> Result<Self, reqwest::Error> {
        let egress = Arc::new(egress);
        let guard = ResolverGuard { resolver: Box::new(resolver), egress: egress.clone() };
        let service = ReqwestService::new(builder.no_proxy().dns_resolver(Arc::new(guard)))?;
        Ok(Self { service, egress })
    }
}

impl Service<Request<Bytes>> for GuardedService {
    type Response = Response;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Response, SendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        // No resolver sees an address in a URL. The request that was checked is the one that is sent.
        let request =
            reqwest::Request::try_from(request).map_err(|error| SendError::not_sent(error.without_url()));
        let request = request.and_then(|request| {
            self.egress.check_url(request.url()).map_err(SendError::not_sent)?;
            Ok(request)
        });
        match request {
            Ok(request) => self.service.execute(request),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl fmt::Debug for GuardedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedService").field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// The refusal in an error of [`GuardedService`], if it is one.
pub(super) fn refusal(error: &SendError) -> Option<&EgressError> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref() {
            return Some(refusal);
        }
        cause = error.source();
    }
    None
}

/// Passes on the addresses that are allowed, and nothing else to connect to.
struct ResolverGuard {
    resolver: Box<dyn Resolve>,
    egress: Arc<Egress>,
}

impl Resolve for ResolverGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolving, egress) = (self.resolver.resolve(name), self.egress.clone());
        Box::pin(async move {
            let (mut allowed, mut refused) = (Vec::new(), None);
            for address in resolving.await?.take(ADDRESSES_MAX) {
                match egress.check_address(address.ip()) {
                    // The port is the one of the URL, which was checked.
                    Ok(()) => allowed.push(SocketAddr::new(address.ip(), 0)),
                    Err(error) => refused = Some(error),
                }
            }
            if allowed.is_empty() {
                return Err(refused.unwrap_or_else(EgressError::no_address).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// The resolver of the operating system.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses = Vec::from_iter(tokio::net::lookup_host((name.as_str(), 0)).await?);
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
