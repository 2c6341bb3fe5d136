//! Connections to the server, and requests to JetStream over them.
use crate::{
    denied::{DENIED, DeniedSubjects},
    error::{Error, ErrorKind},
    options::NatsOptions,
};
use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event, RequestErrorKind, ServerError,
    connection::State,
    jetstream::{Context, ContextBuilder, response::Response},
    rustls,
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{error::Error as _, io, sync::Arc, time::Duration};

/// Time-out of the handshake with one server.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Commands that the client buffers for its connection. A client that has lost its connection can send at
/// most these late.
const CLIENT_CAPACITY: usize = 1024;
/// The most unacknowledged publishes of one client.
const IN_FLIGHT_MAX: usize = 64 * 1024;
/// Backoff attempts of a consumer's connection after a loss. When a server refuses at once they take about
/// 8 s.
const CONSUMER_RECONNECTS: usize = 12;
/// The text of an error of TLS.
pub(crate) const TLS_FAILED: &str = "TLS with NATS failed";
/// The text of that error when something else than TLS came.
const NO_TLS: &str = "TLS with NATS failed: the server does not speak it, see the option `allow_plain`";

/// The purpose of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// Publishing. After a loss the client tries each server once and then ends, so that it sends nothing of
    /// its buffer late.
    Publish,
    /// Consuming. The connection survives the restart of a server, so that acks get through.
    Consume,
    /// A few requests, to provision or to inspect.
    Administer,
}

/// A client with its JetStream context.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    pub(crate) options: Arc<NatsOptions>,
    pub(crate) denied: Arc<DeniedSubjects>,
}

impl Connection {
    pub(crate) async fn open(options: &Arc<NatsOptions>, purpose: Purpose) -> Result<Self, Error> {
        let read = options.with_files().await?;
        let servers = read.servers()?;
        let reconnects = match purpose {
            Purpose::Publish | Purpose::Administer => servers.len(),
            Purpose::Consume => servers.len().max(CONSUMER_RECONNECTS),
        };
        let timeout = match purpose {
            Purpose::Publish => options.publish_timeout,
            Purpose::Consume | Purpose::Administer => options.request_timeout,
        };
        let denied = Arc::new(DeniedSubjects::default());
        let connect = client_options(&read, &denied).await?;
        let connect = connect.max_reconnects(reconnects).request_timeout(Some(timeout));
        // The client library sets no time-out for name resolution.
        let limit = CONNECT_TIMEOUT * u32::try_from(servers.len() + 1).unwrap_or(u32::MAX);
        let client = match tokio::time::timeout(limit, connect.connect(servers)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(connect_error(error)),
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "nats.timeout",
                    "connecting to NATS timed out",
                ));
            }
        };
        let jetstream = ContextBuilder::new()
            .api_prefix(options.api())
            .timeout(timeout)
            .ack_timeout(timeout)
            .max_ack_inflight(IN_FLIGHT_MAX)
            .backpressure_on_inflight(false)
            .build(client.clone());
        tracing::info!(?purpose, server = client.server_info().server_name, "connected to NATS");
        Ok(Self { client, jetstream, options: options.clone(), denied })
    }

    /// Returns the same connection for each of the streams.
    pub(crate) fn each_stream(&self) -> Vec<Self> {
        let each = self.options.each_stream().into_iter();
        let of = |options| Self {
            client: self.client.clone(),
            jetstream: self.jetstream.clone(),
            options: Arc::new(options),
            denied: self.denied.clone(),
        };
        each.map(of).collect()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Sends a request without a body to JetStream. Errors begin with `about`, such as "the stream `EVENTS`".
    pub(crate) async fn request<T: DeserializeOwned>(&self, about: &str, api: String) -> Result<T, Error> {
        self.send(about, api, Bytes::new()).await
    }

    /// Sends a request with a body to JetStream. Errors begin with `about`, such as "the stream `EVENTS`".
    pub(crate) async fn request_with<T: DeserializeOwned>(
        &self,
        about: &str,
        api: String,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(body).map_err(|e| {
            let text = format!("{about}: the request cannot be written as JSON");
            Error::new(ErrorKind::InvalidOptions, "nats.options", text).with_source(e)
        })?;
        self.send(about, api, body.into()).await
    }

    async fn send<T: DeserializeOwned>(&self, about: &str, api: String, body: Bytes) -> Result<T, Error> {
        let failed = |code, problem| Error::new(ErrorKind::Unavailable, code, format!("{about}: {problem}"));
        let denied = |problem| Error::new(ErrorKind::Refused, DENIED, format!("{about}: {problem}"));
        let subject = self.options.api_subject(&api);
        let response = tokio::select! {
            response = self.client.request(subject.clone(), body) => response,
            () = self.denied.until_denied(&subject) => {
                return Err(denied(format!("NATS does not let this user publish to `{subject}`")));
            }
            () = self.denied.until_inbox_denied() => {
                let inbox = &self.options.inbox_prefix;
                return Err(denied(format!(
                    "NATS does not let this user subscribe to `{inbox}.>`, where answers come: set the \
                     option `inbox_prefix` to the words that it may"
                )));
            }
        };
        let response = response.map_err(|error| {
            let (code, problem) = match error.kind() {
                RequestErrorKind::NoResponders => ("nats.no_jetstream", "JetStream does not respond"),
                RequestErrorKind::TimedOut => ("nats.timeout", "JetStream did not respond in time"),
                _ => ("nats.request", "the request failed"),
            };
            failed(code, format!("{problem} to `{subject}`")).with_source(error)
        })?;
        match serde_json::from_slice(&response.payload) {
            Ok(Response::Ok(content)) => Ok(content),
            Ok(Response::Err { error }) => Err(Error::jetstream(about, error)),
            Err(error) => {
                Err(failed("nats.unreadable", "the response cannot be read".to_owned()).with_source(error))
            }
        }
    }
}

async fn client_options(
    options: &NatsOptions,
    denied: &Arc<DeniedSubjects>,
) -> Result<ConnectOptions, Error> {
    let denied = denied.clone();
    let mut connect = ConnectOptions::new()
        .name("twinbox")
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(options.ping_interval)
        .client_capacity(CLIENT_CAPACITY)
        .custom_inbox_prefix(&options.inbox_prefix)
        .require_tls(options.need_tls()?)
        // A server names others before TLS, so whoever is between here and the server could name his own.
        .ignore_discovered_servers()
        .event_callback(move |event| {
            handle_event(&event, &denied);
            std::future::ready(())
        });
    // The client library ignores the login in a URL.
    if let Some((user, password)) = options.login()? {
        connect = match password {
            Some(password) => connect.user_and_password(user, password),
            None => connect.token(user),
        };
    }
    if let Some(token) = &options.token {
        connect = connect.token(token.clone());
    }
    if let Some(path) = &options.credentials_file {
        connect = connect.credentials_file(path).await.map_err(|e| {
            Error::new(ErrorKind::InvalidOptions, "nats.credentials", "the credentials file cannot be read")
                .with_source(e)
        })?;
    }
    if let Some(path) = &options.ca_file {
        connect = connect.add_root_certificates(path.clone());
    }
    if let Some((certificate, key)) = &options.client_certificate {
        connect = connect.add_client_certificate(certificate.clone(), key.clone());
    }
    // Without a default provider, rustls panics in a program that compiles several.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Ok(connect)
}

fn handle_event(event: &Event, denied: &DeniedSubjects) {
    match event {
        Event::Disconnected => tracing::warn!("lost the connection to NATS"),
        Event::SlowConsumer(_) => tracing::warn!("the client dropped deliveries; the server redelivers them"),
        Event::ServerError(ServerError::Other(text)) => {
            tracing::warn!(error = text, "NATS reports an error");
            denied.record(text);
        }
        Event::ServerError(_) => tracing::warn!("NATS reports an error"),
        event => tracing::debug!(%event, "NATS"),
    }
}

fn connect_error(error: async_nats::ConnectError) -> Error {
    use ConnectErrorKind as C;
    let (kind, code, what) = match error.kind() {
        C::ServerParse => (ErrorKind::InvalidOptions, "nats.url", "the NATS URL cannot be used"),
        C::Tls => (ErrorKind::Refused, "nats.tls", TLS_FAILED),
        C::Authentication | C::AuthorizationViolation => {
            (ErrorKind::Unavailable, "nats.authorization", "NATS does not accept the credentials")
        }
        C::TimedOut => (ErrorKind::Unavailable, "nats.timeout", "connecting to NATS timed out"),
        C::Dns => (ErrorKind::Unavailable, "nats.dns", "the name of the NATS server cannot be resolved"),
        C::Io | C::MaxReconnects => {
            let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            match cause.and_then(tls_failure) {
                Some(what) => (ErrorKind::Unavailable, "nats.tls", what),
                None => (ErrorKind::Unavailable, "nats.io", "NATS cannot be reached"),
            }
        }
    };
    Error::new(kind, code, what).with_source(error)
}

/// Returns what to say about an I/O error that is one of TLS, such as a wrong certificate on either side.
pub(crate) fn tls_failure(error: &io::Error) -> Option<&'static str> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidMessage(_) => Some(NO_TLS),
        _ => Some(TLS_FAILED),
    }
}
