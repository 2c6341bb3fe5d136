//! Provisioning of durable consumers.
use crate::{Error, ErrorKind, NatsOptions, connect::Link, stream, subject};
use async_nats::jetstream::consumer::{AckPolicy, Config, DeliverPolicy, Info};
use serde::Serialize;
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
    if config.filter_subjects.len() > 1 && !link.client.is_server_compatible(2, 10, 0) {
        return Err(Error::mismatch(format!(
            "the consumer `{}` handles several types, which needs NATS server 2.10 or newer, and this is {}",
            asked.consumer,
            link.client.server_info().version
        )));
    }
    let what = format!("the consumer `{}`", asked.consumer);
    let (stream, durable) = (&options.stream, durable(&asked.consumer));
    let found: Info = match link.ask(&what, format!("CONSUMER.INFO.{stream}.{durable}")).await {
        Err(error) if error.kind() == ErrorKind::Missing => {
            // A single filter is a part of the subject, by which servers grant permissions.
            let filter = match config.filter_subject.as_str() {
                "" => String::new(),
                filter => format!(".{filter}"),
            };
            let create = Create { stream_name: stream, config: &config, action: "create" };
            let subject = format!("CONSUMER.CREATE.{stream}.{durable}{filter}");
            let info = link.order(&what, subject, &create).await?;
            tracing::info!(consumer = asked.consumer, "created the consumer");
            info
        }
        found => found?,
    };
    stream::compare(&what, &FIELDS, &config, &found.config)
}

/// Asks whether the consumer is still there.
pub(crate) async fn info(link: &Link, options: &NatsOptions, consumer: &str) -> Result<Info, Error> {
    let subject = format!("CONSUMER.INFO.{}.{}", options.stream, durable(consumer));
    link.ask(&format!("the consumer `{consumer}`"), subject).await
}

fn config(options: &NatsOptions, asked: &Subscription) -> Result<Config, Error> {
    let (consumer, types) = (&asked.consumer, &asked.types);
    if !subject::is_prefix(consumer) {
        let problem = "has to be words of letters, digits, `-` and `_` joined by dots, at most 120 bytes";
        return Err(Error::invalid("consumer", problem));
    }
    if asked.ordered {
        let problem = "asks for the order of keys, which a consumer that processes share does not keep";
        return Err(Error::invalid("ordered", problem));
    }
    if types.is_empty() || !types.iter().all(|text| subject::is_type(text)) {
        return Err(Error::invalid("types", "has to name at least one type, and only types"));
    }
    let mut filters: Vec<_> = types.iter().map(|text| subject::filter(&options.prefix, text)).collect();
    // One filter has a field that servers before 2.10 know.
    let filter = if filters.len() == 1 { filters.remove(0) } else { String::new() };
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
        filter_subject: filter,
        filter_subjects: filters,
        ..Config::default()
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
