//! The streams of NATS JetStream that a command looks at.
use clap::Args;
use std::{collections::BTreeSet, path::PathBuf};
use twinbox_nats::{Error, Nats, NatsOptions, StreamAddress};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "NATS")]
pub(crate) struct StreamArguments {
    /// The server of the streams to look at. Keep a password in the environment.
    #[arg(long, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    nats_url: Option<String>,
    /// The credentials file for the server.
    #[arg(long, value_name = "FILE")]
    nats_credentials: Option<PathBuf>,
    /// The CA certificate of the server.
    #[arg(long, value_name = "FILE")]
    nats_ca: Option<PathBuf>,
    /// Where answers come, for a user that may not subscribe to all of `_INBOX.>`.
    #[arg(long, value_name = "PREFIX", default_value = "_INBOX")]
    nats_inbox_prefix: String,
    /// The domain of JetStream that has the stream, as seen from a leaf node. Default: as recorded.
    #[arg(long, value_name = "NAME")]
    nats_domain: Option<String>,
    /// Where an account imports the API of JetStream that has the stream. Default: as recorded.
    #[arg(long, value_name = "PREFIX", conflicts_with = "nats_domain")]
    nats_api_prefix: Option<String>,
    /// The name of the stream. Default: those that relays and consumers have recorded in the database.
    #[arg(long, value_name = "NAME")]
    nats_stream: Option<String>,
    /// Over how many streams the destination spreads its partitions: `NAME-0`, `NAME-1` and so on. Default:
    /// as recorded.
    #[arg(long, value_name = "NUMBER")]
    nats_streams: Option<u32>,
    /// The prefix of its subjects. Default: as recorded.
    #[arg(long, value_name = "PREFIX")]
    nats_prefix: Option<String>,
}

impl StreamArguments {
    /// The server, if it is given.
    pub(crate) fn server(&self) -> Option<Server<'_>> {
        self.nats_url.as_deref().map(|url| self.server_at(url, self.nats_credentials.as_ref()))
    }

    /// Another server of the same streams.
    pub(crate) fn server_at<'a>(&'a self, url: &'a str, credentials: Option<&'a PathBuf>) -> Server<'a> {
        Server { url, credentials, arguments: self }
    }

    /// The stream to look at where a relay or a consumer has recorded this one. None: it has recorded none,
    /// and no option names one.
    pub(crate) fn address(&self, recorded: Option<&str>) -> Option<StreamAddress> {
        let recorded = recorded.and_then(|text| text.parse::<StreamAddress>().ok());
        let mut address = match (recorded, &self.nats_stream) {
            (Some(recorded), None) => recorded,
            (Some(recorded), Some(stream)) if recorded.stream == *stream => recorded,
            (_, Some(stream)) => NatsOptions::new("").stream(stream).address(),
            (None, None) => return None,
        };
        if let Some(streams) = self.nats_streams {
            address.streams = streams;
        }
        if let Some(prefix) = &self.nats_prefix {
            address.prefix.clone_from(prefix);
        }
        if self.nats_domain.is_some() || self.nats_api_prefix.is_some() {
            address.domain.clone_from(&self.nats_domain);
            address.api_prefix.clone_from(&self.nats_api_prefix);
        }
        Some(address)
    }

    /// The streams to look at where relays and consumers have recorded these.
    pub(crate) fn addresses<'a>(&self, recorded: impl Iterator<Item = &'a str>) -> BTreeSet<StreamAddress> {
        let recorded = recorded.filter(|text| self.names_no_other_than(text));
        let found = BTreeSet::from_iter(recorded.filter_map(|text| self.address(Some(text))));
        if found.is_empty() { self.address(None).into_iter().collect() } else { found }
    }

    fn names_no_other_than(&self, recorded: &str) -> bool {
        let recorded = recorded.parse::<StreamAddress>();
        self.nats_stream
            .as_ref()
            .is_none_or(|stream| recorded.is_ok_and(|recorded| recorded.stream == *stream))
    }
}

/// A server, and the login for it.
#[derive(Clone, Copy)]
pub(crate) struct Server<'a> {
    url: &'a str,
    credentials: Option<&'a PathBuf>,
    arguments: &'a StreamArguments,
}

impl Server<'_> {
    /// Does no I/O.
    pub(crate) fn connect(&self) -> Result<Nats, Error> {
        Nats::with_options(self.options())
    }

    /// Does no I/O.
    pub(crate) fn stream(&self, address: StreamAddress) -> Result<Nats, Error> {
        Nats::with_options(self.options().at(address))
    }

    fn options(&self) -> NatsOptions {
        let mut options = NatsOptions::new(self.url).inbox_prefix(&self.arguments.nats_inbox_prefix);
        if let Some(file) = self.credentials {
            options = options.credentials_file(file);
        }
        if let Some(file) = &self.arguments.nats_ca {
            options = options.ca_file(file);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        stream: StreamArguments,
    }

    fn given(options: &[&str]) -> StreamArguments {
        Command::try_parse_from([&["twinbox"], options].concat()).unwrap().stream
    }

    #[test]
    fn the_recorded_streams_are_looked_at_unless_an_option_names_another() {
        let options = |stream| NatsOptions::new("").stream(stream).prefix("shop").partitions(4).streams(2);
        let (shop, mail) = (options("SHOP").address(), options("MAIL").address());
        let (shop_text, mail_text) = (shop.to_string(), mail.to_string());
        let recorded = [shop_text.as_str(), mail_text.as_str(), shop_text.as_str(), "of another broker"];
        let all = |given: StreamArguments| Vec::from_iter(given.addresses(recorded.into_iter()));
        assert_eq!(all(given(&[])), [mail.clone(), shop.clone()]);
        assert_eq!(all(given(&["--nats-stream", "SHOP"])), [shop]);
        let other = NatsOptions::new("").stream("OTHER").prefix("p").address();
        assert_eq!(all(given(&["--nats-stream", "OTHER", "--nats-prefix", "p"])), [other]);
        let one = options("SHOP").streams(1).address();
        assert_eq!(given(&["--nats-streams", "1"]).address(Some(&shop_text)), Some(one));
        let far = options("SHOP").domain("hub").address();
        assert_eq!(given(&["--nats-domain", "hub"]).address(Some(&shop_text)), Some(far));
        assert_eq!(given(&[]).address(Some("of another broker")), None);
        assert!(given(&[]).addresses(std::iter::empty()).is_empty());
    }
}
