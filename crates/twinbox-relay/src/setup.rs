//! From the configuration to relays and destinations.
use crate::{
    Relay, RelayOptions,
    config::{self, Config, ConfigError, Destination, secret},
    program::Failure,
    schemas::Schemas,
};
use std::sync::Arc;
use twinbox_aws::{EventBridge, EventBridgeOptions};
use twinbox_nats::{Nats, NatsOptions, StreamOptions};
use twinbox_sql::{Dialect, log};

pub(crate) fn relay<DB: Dialect>(
    schemas: &Schemas<DB>,
    config: &Config,
    id: &str,
) -> Result<Relay<DB>, Failure> {
    // One of each schema looks out for what nobody takes.
    let reports = beside(config, id).next().is_none_or(|first| id < first);
    let options = options(config, id, reports)?;
    let store = schemas.named(config.namespace_of(id))?.store.clone();
    Ok(Relay::with_options(store, destination(id, &config.destinations[id])?, options))
}

pub(crate) fn destination(
    id: &str,
    configured: &Destination,
) -> Result<Arc<dyn twinbox_core::Destination>, Failure> {
    match configured {
        Destination::Nats(configured) => Ok(Arc::new(nats(id, configured)?)),
        Destination::EventBridge(configured) => {
            let mut options = EventBridgeOptions::new(&configured.bus).id(id);
            if let Some(region) = &configured.region {
                options = options.region(region);
            }
            if let Some(url) = &configured.endpoint_url {
                options = options.endpoint_url(url);
            }
            if let Some(bytes) = configured.request_bytes {
                options = options.request_bytes_max(bytes.0);
            }
            if let Some(entries) = configured.request_entries {
                options = options.request_entries_max(entries);
            }
            if let Some(timeout) = configured.publish_timeout {
                options = options.publish_timeout(timeout.0);
            }
            Ok(Arc::new(EventBridge::with_options(options)?))
        }
    }
}

pub(crate) fn options(config: &Config, id: &str, reports: bool) -> Result<RelayOptions, Failure> {
    let common = config.destinations[id].common();
    let mut options = RelayOptions::new()
        .types(common.types.iter().cloned())
        .start(common.start.map_or(log::Start::IfEmpty, |start| start.0))
        .in_flight(common.in_flight)
        .retry(config.retry_policy(id)?)
        .on_exhausted(common.on_exhausted.into())
        .dead_letter_events(common.dead_letter_events)
        .lease(common.lease.0);
    if let Some(rate) = common.rate {
        options = options.rate(rate);
    }
    if reports {
        let everything = || vec![">".parse().expect("a pattern")];
        let types = beside(config, id).flat_map(|other| match config.destinations[other].common().types {
            [] => everything(),
            types => types.to_vec(),
        });
        options = options.elsewhere(types);
    }
    Ok(options)
}

/// The other destinations of the same schema, by name.
fn beside<'c>(config: &'c Config, id: &str) -> impl Iterator<Item = &'c str> {
    let schema = config.namespace_of(id);
    let others = config.destinations.keys().filter(move |other| *other != id);
    others.filter(move |other| config.namespace_of(other) == schema).map(String::as_str)
}

fn nats(id: &str, config: &config::Nats) -> Result<Nats, Failure> {
    let url = secret("url", config.url.as_deref(), config.url_file.as_deref())?;
    let mut options = NatsOptions::new(url)
        .id(id)
        .stream(&config.stream)
        .prefix(&config.prefix)
        .partitions(config.partitions);
    if let Some(timeout) = config.publish_timeout {
        options = options.publish_timeout(timeout.0);
    }
    if let Some(file) = &config.credentials_file {
        options = options.credentials_file(file);
    }
    if let Some(file) = &config.ca_file {
        options = options.ca_file(file);
    }
    match (&config.client_certificate_file, &config.client_key_file) {
        (Some(certificate), Some(key)) => options = options.client_certificate(certificate, key),
        (None, None) => {}
        _ => {
            let what =
                format!("destination {id:?}: `client_certificate_file` and `client_key_file` go together");
            return Err(ConfigError(what).into());
        }
    }
    if let Some(file) = &config.token_file {
        options = options.token(secret("token", None, Some(file))?);
    }
    if config.create_stream {
        options = options.create_stream(StreamOptions::default());
    }
    Ok(Nats::with_options(options)?)
}
