//! Provisioning of durable consumers.
use crate::{Error, ErrorKind, NatsOptions, connect::Link, stream, subject};
use async_nats::jetstream::consumer::{AckPolicy, Config, DeliverPolicy, Info};
use serde::Serialize;
use std::time::Duration;
use twinbox_core::Subscription;

/// What has to agree, under the server's names.
const FIELDS: [&str; 12] = [
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

/// The same of a reader of a partition.
const READER_FIELDS: [&str; 7] = [
    "deliver_policy",
    "opt_start_seq",
    "ack_policy",
    "max_ack_pending",
    "filter_subject",
    "filter_subjects",
    "inactive_threshold",
];
/// Longer than anything stays unsettled: a reader delivers each message once.
const READER_ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// How long the server keeps a reader that nobody asks.
const READER_IDLE_MAX: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Create<'a> {
    stream_name: &'a str,
    config: &'a Config,
    /// Without it, a server from 2.10 on changes a consumer that somebody else created just before.
    action: &'static str,
}

/// The durable name of a consumer, which may have no dots.
pub(crate) fn durable(consumer: &str) -> String {
    consumer.replace('.', "_")
}

/// Creates the durable consumer if it is missing and checks that it is as asked for.
pub(crate) async fn provision(link: &Link, options: &NatsOptions, asked: &Subscription) -> Result<(), Error> {
    let config = config(options, asked)?;
    check_filters(link, &asked.consumer, &config)?;
    let what = format!("the consumer `{}`", asked.consumer);
    let (stream, durable) = (&options.stream, durable(&asked.consumer));
    let found: Info = match link.ask(&what, format!("CONSUMER.INFO.{stream}.{durable}")).await {
        Err(error) if error.kind() == ErrorKind::Missing => {
            let info = order(link, &what, &durable, &config).await?;
            tracing::info!(consumer = asked.consumer, "created the consumer");
            info
        }
        found => found?,
    };
    stream::compare(&what, &FIELDS, &config, &found.config)
}

/// A server that does not know several filters would deliver everything.
fn check_filters(link: &Link, consumer: &str, config: &Config) -> Result<(), Error> {
    if config.filter_subjects.len() > 1 && !link.client.is_server_compatible(2, 10, 0) {
        return Err(Error::mismatch(format!(
            "the consumer `{consumer}` handles several types, which needs NATS server 2.10 or newer, and this is {}",
            link.client.server_info().version
        )));
    }
    Ok(())
}

async fn order(link: &Link, what: &str, name: &str, config: &Config) -> Result<Info, Error> {
    // A single filter is a part of the subject, by which servers grant permissions.
    let filter = match config.filter_subject.as_str() {
        "" => String::new(),
        filter => format!(".{filter}"),
    };
    let stream = &link.options.stream;
    let create = Create { stream_name: stream, config, action: "create" };
    link.order(what, format!("CONSUMER.CREATE.{stream}.{name}{filter}"), &create).await
}

/// Makes a consumer that reads one partition behind a sequence, and that the server forgets when nobody asks it any
/// more. It is acknowledged so that an operator sees how far it is; nothing is delivered twice by it in practice.
pub(crate) async fn create_reader(
    link: &Link,
    asked: &Subscription,
    partition: u32,
    behind: u64,
) -> Result<String, Error> {
    // An inbox is called like nothing else.
    let inbox = link.client.new_inbox();
    let unique = inbox.rsplit('.').next().unwrap_or_default();
    let name = format!("{}_{partition}_{unique}", durable(&asked.consumer));
    let prefix = &link.options.prefix;
    let filters = asked.types.iter().map(|text| subject::of_partition(prefix, partition, text)).collect();
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
    check_filters(link, &asked.consumer, &config)?;
    let what = format!("the reader of partition {partition} for the consumer `{}`", asked.consumer);
    let found = order(link, &what, &name, &config).await?;
    stream::compare(&what, &READER_FIELDS, &config, &found.config)?;
    Ok(name)
}

/// One filter has a field that servers before 2.10 know.
fn filtered(mut filters: Vec<String>) -> Config {
    let filter = if filters.len() == 1 { filters.remove(0) } else { String::new() };
    Config { filter_subject: filter, filter_subjects: filters, ..Config::default() }
}

/// Refuses names and types that cannot be a part of what the server is asked.
pub(crate) fn check_names(asked: &Subscription) -> Result<(), Error> {
    if !subject::is_prefix(&asked.consumer) {
        let problem = "has to be words of letters, digits, `-` and `_` joined by dots, at most 120 bytes";
        return Err(Error::invalid("consumer", problem));
    }
    if asked.types.is_empty() || !asked.types.iter().all(|text| subject::is_type(text)) {
        return Err(Error::invalid("types", "has to name at least one type, and only types"));
    }
    Ok(())
}

/// Asks whether the consumer of this name on the server is still there.
pub(crate) async fn info(link: &Link, name: &str) -> Result<Info, Error> {
    let subject = format!("CONSUMER.INFO.{}.{name}", link.options.stream);
    link.ask(&format!("the consumer `{name}`"), subject).await
}

fn config(options: &NatsOptions, asked: &Subscription) -> Result<Config, Error> {
    let (consumer, types) = (&asked.consumer, &asked.types);
    check_names(asked)?;
    if asked.ordered {
        let problem = "asks for the order of keys, which a consumer that processes share does not keep";
        return Err(Error::invalid("ordered", problem));
    }
    let filters = types.iter().map(|text| subject::filter(&options.prefix, text)).collect();
    Ok(Config {
        durable_name: Some(durable(consumer)),
        name: Some(durable(consumer)),
        // Tells `a.b` from `a_b`.
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

    fn asked(consumer: &str, types: &[&str]) -> Result<Config, Error> {
        let types = types.iter().map(|&text| text.to_owned()).collect();
        let subscription = Subscription { consumer: consumer.into(), types, concurrency: 1, ordered: false };
        config(&NatsOptions::new("nats://localhost"), &subscription)
    }

    #[test]
    fn names_and_filters() {
        let one = asked("billing.invoice", &["orders.placed"]).unwrap();
        assert_eq!(one.durable_name.unwrap(), "billing_invoice");
        assert_eq!(one.description.unwrap(), "billing.invoice");
        assert_eq!(one.filter_subject, "events.*.orders.placed");
        assert!(one.filter_subjects.is_empty());
        let two = asked("billing", &["a", "b"]).unwrap();
        assert_eq!(two.filter_subject, "");
        assert_eq!(two.filter_subjects, ["events.*.a", "events.*.b"]);
        for (consumer, types) in
            [("", &["a"][..]), ("a b", &["a"]), ("a.>", &["a"]), ("a", &[]), ("a", &["*"])]
        {
            assert_eq!(asked(consumer, types).unwrap_err().kind(), ErrorKind::InvalidOptions);
        }
    }

    #[test]
    fn the_order_of_keys_is_refused() {
        let types = vec!["a".to_owned()];
        let ordered = Subscription { consumer: "a".into(), types, concurrency: 1, ordered: true };
        let error = config(&NatsOptions::new("nats://localhost"), &ordered).unwrap_err();
        assert!(error.to_string().contains("`ordered`"), "{error}");
    }

    #[test]
    fn a_field_that_differs_is_named() {
        let asked = asked("billing", &["a", "b"]).unwrap();
        let found = Config { filter_subjects: Vec::new(), ..asked.clone() };
        let error = stream::compare("the consumer `billing`", &FIELDS, &asked, &found).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the consumer `billing` has filter_subjects = null on the server and \
             [\"events.*.a\",\"events.*.b\"] was asked for; change one of them"
        );
        stream::compare("", &FIELDS, &asked, &asked).unwrap();
    }
}
