//! Provisioning of consumers on the server.
use crate::{
    connect::Connection,
    error::{Error, ErrorKind},
    options::NatsOptions,
    stream, subject,
};
use async_nats::jetstream::consumer::{AckPolicy, Config, DeliverPolicy, Info};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use twinbox_core::Subscription;

/// The fields of a durable consumer that are compared, under the server's names.
const DURABLE_FIELDS: [&str; 12] = [
    "durable_name",
    "description",
    "deliver_policy",
    "deliver_subject",
    "ack_policy",
    "ack_wait",
    "max_deliver",
    "max_ack_pending",
    "filter_subject",
    "filter_subjects",
    "headers_only",
    "backoff",
];

/// The fields of a partition reader that are compared, under the server's names.
const READER_FIELDS: [&str; 7] = [
    "deliver_policy",
    "opt_start_seq",
    "ack_policy",
    "max_ack_pending",
    "filter_subject",
    "filter_subjects",
    "inactive_threshold",
];
/// The ack wait of a partition reader: longer than any message stays unacknowledged, so that none is
/// redelivered.
const READER_ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// How long the server keeps a partition reader that receives no request.
const READER_IDLE_MAX: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct CreateRequest<'a> {
    stream_name: &'a str,
    config: &'a Config,
    /// Without it, a server from 2.10 on changes a consumer that another process has just created.
    action: &'static str,
}

/// Returns the durable name of a consumer. JetStream allows no dots in it.
pub(crate) fn durable_name(consumer: &str) -> String {
    consumer.replace('.', "_")
}

/// Creates the durable consumer if it is missing, and checks its configuration.
pub(crate) async fn provision(connection: &Connection, subscription: &Subscription) -> Result<(), Error> {
    let consumer = &subscription.consumer;
    let expected = durable_config(&connection.options, subscription)?;
    check_filter_support(connection, consumer, &expected)?;
    let about = format!("the consumer `{consumer}`");
    let (stream, durable) = (&connection.options.stream, durable_name(consumer));
    let api = format!("CONSUMER.INFO.{stream}.{durable}");
    let found: Info = match connection.request(&about, api).await {
        Err(error) if error.kind() == ErrorKind::Missing => {
            let info = create(connection, &about, &durable, &expected).await?;
            tracing::info!(consumer, "created the consumer");
            info
        }
        found => found?,
    };
    stream::compare(&about, &DURABLE_FIELDS, &expected, &found.config)
}

/// Refuses several filters on a server before 2.10, which would ignore them and deliver everything.
fn check_filter_support(connection: &Connection, consumer: &str, config: &Config) -> Result<(), Error> {
    if config.filter_subjects.len() > 1 && !connection.client.is_server_compatible(2, 10, 0) {
        return Err(Error::mismatch(format!(
            "the consumer `{consumer}` handles several types, which needs NATS server 2.10 or newer, and \
             this is {}",
            connection.client.server_info().version
        )));
    }
    Ok(())
}

async fn create(connection: &Connection, about: &str, name: &str, config: &Config) -> Result<Info, Error> {
    // A single filter is a part of the API subject, because servers grant permissions by it.
    let filter = match config.filter_subject.as_str() {
        "" => String::new(),
        filter => format!(".{filter}"),
    };
    let stream = &connection.options.stream;
    let body = CreateRequest { stream_name: stream, config, action: "create" };
    connection.request_with(about, format!("CONSUMER.CREATE.{stream}.{name}{filter}"), &body).await
}

/// Creates an ephemeral consumer that reads one partition from the sequence after `behind`. Returns its name.
///
/// The server deletes it after a minute without requests. Acks only show an operator how far it has read; in
/// practice no message is delivered twice.
pub(crate) async fn create_reader(
    connection: &Connection,
    subscription: &Subscription,
    partition: u32,
    behind: u64,
) -> Result<String, Error> {
    // The last word of an inbox is unique.
    let inbox = connection.client.new_inbox();
    let unique = inbox.rsplit('.').next().unwrap_or_default();
    let name = format!("{}_{partition}_{unique}", durable_name(&subscription.consumer));
    let prefix = &connection.options.prefix;
    let types = subscription.types.iter();
    let filters = types.map(|text| subject::partition_filter(prefix, partition, text)).collect();
    let config = Config {
        name: Some(name.clone()),
        deliver_policy: match behind {
            0 => DeliverPolicy::All,
            behind => DeliverPolicy::ByStartSequence { start_sequence: behind + 1 },
        },
        ack_policy: AckPolicy::All,
        ack_wait: READER_ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: -1,
        inactive_threshold: READER_IDLE_MAX,
        memory_storage: true,
        ..filtered(filters)
    };
    check_filter_support(connection, &subscription.consumer, &config)?;
    let about = format!("the reader of partition {partition} for the consumer `{}`", subscription.consumer);
    let found = create(connection, &about, &name, &config).await?;
    stream::compare(&about, &READER_FIELDS, &config, &found.config)?;
    Ok(name)
}

/// Sets the filters. A single filter uses the field that servers before 2.10 know.
fn filtered(mut filters: Vec<String>) -> Config {
    let filter = if filters.len() == 1 { filters.remove(0) } else { String::new() };
    Config { filter_subject: filter, filter_subjects: filters, ..Config::default() }
}

/// Refuses names and types that cannot be part of a request to the server.
pub(crate) fn check_names(subscription: &Subscription) -> Result<(), Error> {
    check_name(&subscription.consumer)?;
    if subscription.types.is_empty() || !subscription.types.iter().all(|text| subject::is_type(text)) {
        return Err(Error::invalid("types", "must name at least one type, and only types"));
    }
    Ok(())
}

/// Refuses a name that no consumer can have.
pub(crate) fn check_name(consumer: &str) -> Result<(), Error> {
    if !subject::is_prefix(consumer) {
        let problem = "must be words of letters, digits, `-` and `_` joined by dots, at most 120 bytes";
        return Err(Error::invalid("consumer", problem));
    }
    Ok(())
}

/// Returns the configuration and the state of the consumer with this name on the server.
pub(crate) async fn info(connection: &Connection, name: &str) -> Result<Info, Error> {
    let api = format!("CONSUMER.INFO.{}.{name}", connection.options.stream);
    connection.request(&format!("the consumer `{name}`"), api).await
}

/// Deletes the consumer with this name on the server.
pub(crate) async fn delete(connection: &Connection, name: &str) -> Result<(), Error> {
    let api = format!("CONSUMER.DELETE.{}.{name}", connection.options.stream);
    connection.request::<Value>(&format!("the consumer `{name}`"), api).await.map(drop)
}

fn durable_config(options: &NatsOptions, subscription: &Subscription) -> Result<Config, Error> {
    let (consumer, types) = (&subscription.consumer, &subscription.types);
    check_names(subscription)?;
    if subscription.is_ordered {
        let problem = "needs the order of keys, which a consumer shared by several processes does not keep";
        return Err(Error::invalid("ordered", problem));
    }
    let filters = types.iter().map(|text| subject::type_filter(&options.prefix, text)).collect();
    Ok(Config {
        durable_name: Some(durable_name(consumer)),
        name: Some(durable_name(consumer)),
        // Distinguishes `a.b` from `a_b`, which have one durable name.
        description: Some(consumer.clone()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: options.ack_wait,
        max_deliver: -1,
        max_ack_pending: options.max_ack_pending.into(),
        ..filtered(filters)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(consumer: &str, types: &[&str]) -> Result<Config, Error> {
        let types = types.iter().map(|&text| text.to_owned()).collect();
        let subscription =
            Subscription { consumer: consumer.into(), types, concurrency: 1, is_ordered: false };
        durable_config(&NatsOptions::new("nats://localhost"), &subscription)
    }

    #[test]
    fn names_and_filters() {
        let one = expected("billing.invoice", &["orders.placed"]).unwrap();
        assert_eq!(one.durable_name.unwrap(), "billing_invoice");
        assert_eq!(one.description.unwrap(), "billing.invoice");
        assert_eq!(one.filter_subject, "events.*.orders.placed");
        assert!(one.filter_subjects.is_empty());
        let two = expected("billing", &["a", "b"]).unwrap();
        assert_eq!(two.filter_subject, "");
        assert_eq!(two.filter_subjects, ["events.*.a", "events.*.b"]);
        for (consumer, types) in
            [("", &["a"][..]), ("a b", &["a"]), ("a.>", &["a"]), ("a", &[]), ("a", &["*"])]
        {
            assert_eq!(expected(consumer, types).unwrap_err().kind(), ErrorKind::InvalidOptions);
        }
    }

    #[test]
    fn the_order_of_keys_is_refused() {
        let types = vec!["a".to_owned()];
        let ordered = Subscription { consumer: "a".into(), types, concurrency: 1, is_ordered: true };
        let error = durable_config(&NatsOptions::new("nats://localhost"), &ordered).unwrap_err();
        assert!(error.to_string().contains("`ordered`"), "{error}");
    }

    #[test]
    fn a_field_that_differs_is_named() {
        let expected = expected("billing", &["a", "b"]).unwrap();
        let found = Config { filter_subjects: Vec::new(), ..expected.clone() };
        let error =
            stream::compare("the consumer `billing`", &DURABLE_FIELDS, &expected, &found).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the consumer `billing` has filter_subjects = null on the server and \
             [\"events.*.a\",\"events.*.b\"] was asked for; change one of them"
        );
        stream::compare("", &DURABLE_FIELDS, &expected, &expected).unwrap();
    }
}
