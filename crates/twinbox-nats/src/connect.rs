//! One connection, and requests to JetStream over it.
use crate::{Error, ErrorKind, NatsOptions, denials::Denials, stream};
use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event, RequestErrorKind, ServerError,
    connection::State,
    jetstream::{Context, ContextBuilder, response::Response, stream::Info},
    rustls,
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{error::Error as _, sync::Arc, time::Duration};

/// How long one server may take to let a client in.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Commands that wait in the client for the connection. What a client that lost its connection can still
/// send late is at most this.
const CLIENT_CAPACITY: usize = 1024;
/// Publishes of one client without an acknowledgement.
const IN_FLIGHT_MAX: usize = 64 * 1024;

/// What a connection is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Use {
    /// It tries each server once after a loss and then ends, so that nothing that its client still holds is
    /// sent late.
    Publish,
    /// It rides out the restart of a server, so that acknowledgements get through.
    Consume,
    /// A few requests.
    Provision,
}

/// Tries of a consumer's connection after a loss. They take about 8 s when a server refuses at once.
const CONSUMER_RECONNECTS: usize = 12;

pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    pub(crate) options: Arc<NatsOptions>,
    pub(crate) denials: Arc<Denials>,
}

impl Link {
    pub(crate) async fn open(options: &Arc<NatsOptions>, purpose: Use) -> Result<Self, Error> {
        let servers = options.servers()?;
        let tries = match purpose {
            Use::Publish | Use::Provision => servers.len(),
            Use::Consume => servers.len().max(CONSUMER_RECONNECTS),
        };
        let timeout = match purpose {
            Use::Publish => options.publish_timeout,
            Use::Consume | Use::Provision => options.request_timeout,
        };
        let denials = Arc::new(Denials::default());
        let connect =
            client_options(options, &denials).await?.max_reconnects(tries).request_timeout(Some(timeout));
        // Name resolution has no bound of its own.
        let limit = CONNECT_TIMEOUT * u32::try_from(servers.len() + 1).unwrap_or(u32::MAX);
        let client = match tokio::time::timeout(limit, connect.connect(servers)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(refused(error)),
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "nats.timeout",
                    "connecting to NATS timed out",
                ));
            }
        };
        let jetstream = ContextBuilder::new()
            .timeout(timeout)
            .ack_timeout(timeout)
            .max_ack_inflight(IN_FLIGHT_MAX)
            .backpressure_on_inflight(false)
            .build(client.clone());
        tracing::info!(?purpose, server = client.server_info().server_name, "connected to NATS");
        Ok(Self { client, jetstream, options: options.clone(), denials })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Asks JetStream. `what` says what for.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, what: &str, subject: String) -> Result<T, Error> {
        self.request(what, subject, Bytes::new()).await
    }

    /// Orders JetStream.
    pub(crate) async fn order<T: DeserializeOwned>(
        &self,
        what: &str,
        subject: String,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(body).map_err(|e| {
            Error::new(ErrorKind::InvalidOptions, "nats.options", format!("{what} cannot be asked for"))
                .with_source(e)
        })?;
        self.request(what, subject, body.into()).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        what: &str,
        subject: String,
        body: Bytes,
    ) -> Result<T, Error> {
        let failed = |code, why| Error::new(ErrorKind::Unavailable, code, format!("{what}: {why}"));
        let answer = self.client.request(format!("$JS.API.{subject}"), body).await.map_err(|error| {
            let (code, why) = match error.kind() {
                RequestErrorKind::NoResponders => ("nats.no_jetstream", "JetStream does not answer"),
                RequestErrorKind::TimedOut => ("nats.timeout", "no answer in time"),
                _ => ("nats.request", "the request failed"),
            };
            failed(code, why).with_source(error)
        })?;
        match serde_json::from_slice(&answer.payload) {
            Ok(Response::Ok(answer)) => Ok(answer),
            Ok(Response::Err { error }) => Err(Error::answered(what, error)),
            Err(error) => Err(failed("nats.unreadable", "the answer cannot be read").with_source(error)),
        }
    }

    /// Asks for the stream. Fails if it does not exist or takes no subject of ours.
    pub(crate) async fn check_stream(&self) -> Result<Info, Error> {
        let info = stream::info(self, &self.options.stream).await?;
        stream::check_subjects(&info, &self.options)?;
        Ok(info)
    }

    /// The same, and creates the stream if that was asked for.
    pub(crate) async fn prepare_stream(&self) -> Result<(), Error> {
        match &self.options.create_stream {
            Some(asked) => stream::provision(self, &self.options, asked).await,
            None => self.check_stream().await.map(drop),
        }
    }
}

async fn client_options(options: &NatsOptions, denials: &Arc<Denials>) -> Result<ConnectOptions, Error> {
    let denials = denials.clone();
    let mut connect = ConnectOptions::new()
        .name("twinbox")
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(options.ping_interval)
        .client_capacity(CLIENT_CAPACITY)
        .event_callback(move |event| {
            note(&event, &denials);
            std::future::ready(())
        });
    // The client library takes no notice of what a URL holds.
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
    // Without a provider, rustls panics in a program in which several are compiled.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Ok(connect)
}

fn note(event: &Event, denials: &Denials) {
    match event {
        Event::Disconnected => tracing::warn!("lost the connection to NATS"),
        Event::SlowConsumer(_) => tracing::warn!("NATS deliveries were dropped, they come again"),
        Event::ServerError(ServerError::Other(text)) => {
            tracing::warn!(error = text, "NATS reports an error");
            denials.note(text);
        }
        Event::ServerError(_) => tracing::warn!("NATS reports an error"),
        event => tracing::debug!(%event, "NATS"),
    }
}

fn refused(error: async_nats::ConnectError) -> Error {
    use ConnectErrorKind as C;
    let (kind, code, what) = match error.kind() {
        C::ServerParse => (ErrorKind::InvalidOptions, "nats.url", "the NATS URL cannot be used"),
        C::Tls => (ErrorKind::Refused, "nats.tls", "TLS with NATS failed"),
        C::Authentication | C::AuthorizationViolation => {
            (ErrorKind::Unavailable, "nats.authorization", "NATS does not accept the credentials")
        }
        C::TimedOut => (ErrorKind::Unavailable, "nats.timeout", "connecting to NATS timed out"),
        C::Dns => (ErrorKind::Unavailable, "nats.dns", "the name of the NATS server cannot be resolved"),
        C::Io if is_tls(&error) => (ErrorKind::Unavailable, "nats.tls", "TLS with NATS failed"),
        C::Io | C::MaxReconnects => (ErrorKind::Unavailable, "nats.io", "NATS cannot be reached"),
    };
    Error::new(kind, code, what).with_source(error)
}

/// A handshake that fails counts as input and output for the client library: a wrong certificate on either side.
fn is_tls(error: &async_nats::ConnectError) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    cause.and_then(std::io::Error::get_ref).is_some_and(|inner| inner.is::<rustls::Error>())
}
