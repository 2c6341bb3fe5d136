//! The streams of NATS JetStream that a command looks at.
use clap::Args;
use std::path::PathBuf;
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
    /// Allow a connection to a server on another machine without TLS.
    #[arg(long)]
    nats_allow_plain: bool,
    /// Where answers come, for a user that may not subscribe to all of `_INBOX.>`.
    #[arg(long, value_name = "PREFIX", default_value = "_INBOX")]
    nats_inbox_prefix: String,
    /// The domain of JetStream that has the stream, as seen from a leaf node.
    #[arg(long, value_name = "NAME")]
    nats_domain: Option<String>,
    /// Where an account imports the API of JetStream that has the stream.
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

    /// The same streams seen by another user, or from another server.
    pub(crate) fn server_at<'a>(&'a self, url: &'a str, credentials: Option<&'a PathBuf>) -> Server<'a> {
        Server { url, credentials, arguments: self }
    }

    /// Returns the stream to look at. Options win over what a relay or a consumer has recorded. None: neither
    /// names one.
    pub(crate) fn address(&self, recorded: Option<&str>) -> Option<StreamAddress> {
        let recorded = recorded.and_then(|text| text.parse().ok()).filter(|address| self.takes(address));
        let named = || self.nats_stream.as_ref().map(|stream| NatsOptions::new("").stream(stream).address());
        let mut address = recorded.or_else(named)?;
        address.streams = self.nats_streams.unwrap_or(address.streams);
        if let Some(prefix) = &self.nats_prefix {
            address.prefix.clone_from(prefix);
        }
        Some(address)
    }

    /// Returns each stream to look at once, of all that relays and consumers have recorded.
    pub(crate) fn addresses<'a>(&self, recorded: impl Iterator<Item = &'a str>) -> Vec<StreamAddress> {
        let taken = recorded.filter(|text| text.parse().is_ok_and(|address| self.takes(&address)));
        let mut found = Vec::<StreamAddress>::new();
        for address in taken.filter_map(|recorded| self.address(Some(recorded))) {
            if !found.iter().any(|one| (&one.stream, one.streams) == (&address.stream, address.streams)) {
                found.push(address);
            }
        }
        if found.is_empty() {
            found.extend(self.address(None));
        }
        found
    }

    /// Whether no option names another stream.
    fn takes(&self, recorded: &StreamAddress) -> bool {
        self.nats_stream.as_ref().is_none_or(|stream| *stream == recorded.stream)
    }

    /// Whether an option names the stream.
    pub(crate) fn is_named(&self) -> bool {
        self.nats_stream.is_some()
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
        let mut options = NatsOptions::new(self.url)
            .allow_plain(self.arguments.nats_allow_plain)
            .inbox_prefix(&self.arguments.nats_inbox_prefix);
        if let Some(file) = self.credentials {
            options = options.credentials_file(file);
        }
        if let Some(file) = &self.arguments.nats_ca {
            options = options.ca_file(file);
        }
        if let Some(domain) = &self.arguments.nats_domain {
            options = options.domain(domain);
        }
        if let Some(prefix) = &self.arguments.nats_api_prefix {
            options = options.api_prefix(prefix);
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
        let of_a_consumer = options("SHOP").partitions(16).address().to_string();
        let recorded = [&*shop_text, &*mail_text, &*of_a_consumer, "of another broker"];
        let all = |given: StreamArguments| given.addresses(recorded.into_iter());
        assert_eq!(all(given(&[])), [shop.clone(), mail]);
        assert_eq!(all(given(&["--nats-stream", "SHOP"])), [shop]);
        let other = NatsOptions::new("").stream("OTHER").prefix("p").address();
        assert_eq!(all(given(&["--nats-stream", "OTHER", "--nats-prefix", "p"])), [other]);
        let one = options("SHOP").streams(1).address();
        assert_eq!(given(&["--nats-streams", "1"]).address(Some(&shop_text)), Some(one));
        assert_eq!(given(&[]).address(Some("of another broker")), None);
        assert!(given(&[]).addresses(std::iter::empty()).is_empty());
    }
}
