//! The permissions of users of the server, for its configuration.
use crate::{
    broker::Nats,
    consumer::{self, durable_name},
    error::Error,
    subject,
};
use std::fmt;

/// The purpose of a user of the server, from which its permissions follow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserPurpose {
    /// Publishes to the stream, and prepares it.
    Relay,
    /// Runs the consumer of this name.
    Consumer(String),
    /// Runs the consumer of this name, which reads partitions in order.
    OrderedConsumer(String),
    /// Looks at the stream, and counts how far its consumers are behind.
    Operator,
}

/// The subjects that a user of the server may publish to and subscribe to. Its text is the block
/// `permissions` of the server's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permissions {
    /// The subjects that it may publish to.
    pub publish: Vec<String>,
    /// The subjects that it may subscribe to.
    pub subscribe: Vec<String>,
}

impl Nats {
    /// Returns what a user for this purpose needs who connects with these options, and no more.
    ///
    /// With [`create_stream`](crate::NatsOptions::create_stream) that includes the right to create the
    /// stream. A consumer with order, and an operator, may read the whole stream, whatever its prefix and
    /// types: the server cannot tell what the consumers are for that they create.
    ///
    /// # Errors
    /// The name of the consumer cannot be one.
    pub fn permissions(&self, purpose: &UserPurpose) -> Result<Permissions, Error> {
        if let UserPurpose::Consumer(name) | UserPurpose::OrderedConsumer(name) = purpose {
            consumer::check_name(name)?;
        }
        let mut publish = Vec::new();
        if *purpose == UserPurpose::Relay {
            publish.push(subject::all(&self.options.prefix));
        }
        for options in self.options.each_stream() {
            let stream = &options.stream;
            let mut api = |request: String| publish.push(options.api_subject(&request));
            api(format!("STREAM.INFO.{stream}"));
            if options.create_stream.is_some() {
                api(format!("STREAM.CREATE.{stream}"));
            }
            match purpose {
                UserPurpose::Relay => api(format!("STREAM.UPDATE.{stream}")),
                UserPurpose::Consumer(consumer) => {
                    let durable = durable_name(consumer);
                    api(format!("CONSUMER.INFO.{stream}.{durable}"));
                    // With several types, and with one.
                    api(format!("CONSUMER.CREATE.{stream}.{durable}"));
                    api(format!("CONSUMER.CREATE.{stream}.{durable}.>"));
                    api(format!("CONSUMER.MSG.NEXT.{stream}.{durable}"));
                    publish.push(format!("$JS.ACK.{stream}.{durable}.>"));
                }
                UserPurpose::OrderedConsumer(_) => {
                    api(format!("STREAM.MSG.GET.{stream}"));
                    api(format!("CONSUMER.INFO.{stream}.*"));
                    api(format!("CONSUMER.CREATE.{stream}.>"));
                    api(format!("CONSUMER.MSG.NEXT.{stream}.*"));
                    publish.push(format!("$JS.ACK.{stream}.>"));
                }
                UserPurpose::Operator => {
                    api(format!("STREAM.MSG.GET.{stream}"));
                    api(format!("CONSUMER.NAMES.{stream}"));
                    api(format!("CONSUMER.INFO.{stream}.*"));
                    api(format!("CONSUMER.CREATE.{stream}.>"));
                    api(format!("CONSUMER.DELETE.{stream}.*"));
                }
            }
        }
        Ok(Permissions { publish, subscribe: vec![subject::all(&self.options.inbox_prefix)] })
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |subjects: &[String]| {
            let lines = subjects.iter().map(|subject| format!("    \"{subject}\"\n"));
            format!("[\n{}  ]", String::from_iter(lines))
        };
        writeln!(f, "permissions: {{")?;
        writeln!(f, "  publish: {}", list(&self.publish))?;
        writeln!(f, "  subscribe: {}", list(&self.subscribe))?;
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NatsOptions, StreamOptions};

    fn permissions(options: &NatsOptions, purpose: &UserPurpose) -> Permissions {
        Nats::with_options(options.clone()).unwrap().permissions(purpose).unwrap()
    }

    #[test]
    fn a_relay_may_publish_below_its_prefix_and_prepare_its_streams() {
        let options = NatsOptions::new("nats://leaf").stream("SHOP").prefix("shop").streams(2);
        let options = options.domain("hub").create_stream(StreamOptions::default());
        assert_eq!(
            permissions(&options, &UserPurpose::Relay).publish,
            [
                "shop.>",
                "$JS.hub.API.STREAM.INFO.SHOP-0",
                "$JS.hub.API.STREAM.CREATE.SHOP-0",
                "$JS.hub.API.STREAM.UPDATE.SHOP-0",
                "$JS.hub.API.STREAM.INFO.SHOP-1",
                "$JS.hub.API.STREAM.CREATE.SHOP-1",
                "$JS.hub.API.STREAM.UPDATE.SHOP-1",
            ]
        );
        assert_eq!(permissions(&options, &UserPurpose::Relay).subscribe, ["_INBOX.>"]);
    }

    #[test]
    fn nobody_but_a_relay_may_publish_messages_or_change_the_stream() {
        let options = NatsOptions::new("nats://localhost").inbox_prefix("_INBOX_x");
        let consumer = "billing.invoice".to_owned();
        for purpose in [
            UserPurpose::Consumer(consumer.clone()),
            UserPurpose::OrderedConsumer(consumer),
            UserPurpose::Operator,
        ] {
            let all = permissions(&options, &purpose).publish;
            assert!(all.iter().all(|subject| subject.starts_with("$JS.")), "{all:?}");
            let changes = ["STREAM.UPDATE", "STREAM.CREATE", "STREAM.DELETE", "STREAM.PURGE"];
            assert!(!all.iter().any(|subject| changes.iter().any(|c| subject.contains(c))), "{all:?}");
            assert_eq!(permissions(&options, &purpose).subscribe, ["_INBOX_x.>"]);
        }
    }

    #[test]
    fn a_name_that_no_consumer_can_have_is_refused() {
        let nats = Nats::new("nats://localhost").unwrap();
        for name in ["", ">", "a b", "a\"b"] {
            nats.permissions(&UserPurpose::Consumer(name.to_owned())).unwrap_err();
        }
    }

    #[test]
    fn the_text_is_a_block_of_the_servers_configuration() {
        let permissions = Permissions { publish: vec!["a.>".to_owned()], subscribe: vec!["b".to_owned()] };
        let text = "permissions: {\n  publish: [\n    \"a.>\"\n  ]\n  subscribe: [\n    \"b\"\n  ]\n}";
        assert_eq!(permissions.to_string(), text);
    }
}
