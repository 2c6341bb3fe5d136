//! Makes relays and destinations from the configuration.
use crate::{
    config::{self, Config, ConfigError, Destination, secret},
    failure::Failure,
    options::RelayOptions,
    relay::Relay,
    schemas::Schemas,
};
use std::sync::Arc;
use twinbox_aws::{EventBridge, EventBridgeOptions};
use twinbox_log::{Shares, StartPosition};
use twinbox_nats::{Nats, NatsOptions, StreamOptions};
use twinbox_sql::Dialect;

pub(crate) fn relay<DB: Dialect>(
    schemas: &Schemas<DB>,
    config: &Config,
    id: &str,
    shares: &Shares,
) -> Result<Relay<DB>, Failure> {
    // One relay of each schema reports the messages that no destination takes.
    let reports_unrouted = other_destinations(config, id).next().is_none_or(|first| id < first);
    let schema = schemas.named(config.outbox_of(id))?;
    let options = options(config, id, reports_unrouted)?.idle_poll(schema.idle_poll);
    let destination = destination(id, &config.destinations[id])?;
    let relay = Relay::with_options(schema.store.clone(), destination, options);
    // The program runs one keeper for each schema.
    Ok(relay.without_keeper().shares(shares))
}

pub(crate) fn destination(
    id: &str,
    configured: &Destination,
) -> Result<Arc<dyn twinbox_core::Destination>, Failure> {
    match configured {
        Destination::Nats(configured) => Ok(Arc::new(nats(id, configured)?)),
        Destination::EventBridge(configured) => Ok(Arc::new(event_bridge(id, configured)?)),
    }
}

pub(crate) fn options(config: &Config, id: &str, reports_unrouted: bool) -> Result<RelayOptions, Failure> {
    let common = config.destinations[id].common();
    let mut options = RelayOptions::new()
        .types(common.types.iter().cloned())
        .start(common.start.map_or(StartPosition::IfEmpty, |start| start.0))
        .in_flight(common.in_flight)
        .retry(config.retry_policy(id)?)
        .on_exhausted(common.on_exhausted)
        .dead_letter_events(common.dead_letter_events)
        .lease(common.lease.0);
    if let Some(rate) = common.rate {
        options = options.rate(rate);
    }
    if reports_unrouted {
        let all_types = || vec![">".parse().expect("a valid pattern")];
        let others = other_destinations(config, id);
        let types = others.flat_map(|other| match config.destinations[other].common().types {
            [] => all_types(),
            types => types.to_vec(),
        });
        options = options.types_of_other_destinations(types);
    }
    Ok(options)
}

/// Returns the ids of the other destinations of the same schema, in order.
fn other_destinations<'c>(config: &'c Config, id: &str) -> impl Iterator<Item = &'c str> {
    let schema = config.outbox_of(id);
    let others = config.destinations.keys().filter(move |other| *other != id);
    others.filter(move |other| config.outbox_of(other) == schema).map(String::as_str)
}

fn event_bridge(id: &str, config: &config::EventBridge) -> Result<EventBridge, Failure> {
    let mut options = EventBridgeOptions::new(&config.bus).id(id).allow_plain(config.allow_plain);
    if let Some(region) = &config.region {
        options = options.region(region);
    }
    if let Some(url) = &config.endpoint_url {
        options = options.endpoint_url(url);
    }
    if let Some(bytes) = config.request_bytes {
        options = options.request_bytes_max(bytes.0);
    }
    if let Some(entries) = config.request_entries {
        options = options.request_entries_max(entries);
    }
    if let Some(timeout) = config.publish_timeout {
        options = options.publish_timeout(timeout.0);
    }
    Ok(EventBridge::with_options(options)?)
}

fn nats(id: &str, config: &config::Nats) -> Result<Nats, Failure> {
    let url = secret("url", config.url.as_deref(), config.url_file.as_deref())?;
    let mut options = NatsOptions::new(url)
        .id(id)
        .allow_plain(config.allow_plain)
        .inbox_prefix(&config.inbox_prefix)
        .stream(&config.stream)
        .prefix(&config.prefix)
        .partitions(config.partitions)
        .streams(config.streams);
    // Connections read the files again. They are read here too, so that a wrong one is an error at the start.
    if let Some(file) = &config.url_file {
        options = options.url_file(file);
    }
    if let Some(timeout) = config.publish_timeout {
        options = options.publish_timeout(timeout.0);
    }
    if let Some(domain) = &config.domain {
        options = options.domain(domain);
    }
    if let Some(prefix) = &config.api_prefix {
        options = options.api_prefix(prefix);
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
            let text = format!(
                "destination {id:?} needs both or neither of `client_certificate_file` and `client_key_file`"
            );
            return Err(ConfigError::new(text).into());
        }
    }
    if let Some(file) = &config.token_file {
        secret("token", None, Some(file))?;
        options = options.token_file(file);
    }
    if config.create_stream {
        options = options.create_stream(stream(config));
    }
    Ok(Nats::with_options(options)?)
}

/// The stream that is created if it is missing.
fn stream(config: &config::Nats) -> StreamOptions {
    let stream = StreamOptions::default()
        .batches(config.batches)
        .replicas(config.replicas)
        .max_age(config.max_age.0)
        .duplicate_window(config.duplicate_window.0);
    match config.max_bytes {
        Some(bytes) => stream.max_bytes(u64::try_from(bytes.0).unwrap_or(u64::MAX)),
        None => stream,
    }
}

#[cfg(test)]
mod tests;
