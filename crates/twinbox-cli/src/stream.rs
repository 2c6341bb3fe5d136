//! The stream of NATS JetStream that a command looks at.
use clap::Args;
use std::path::PathBuf;
use twinbox_nats::{Error, Nats, NatsOptions};

#[derive(Debug, Args)]
#[command(next_help_heading = "NATS")]
pub(crate) struct StreamArguments {
    /// The server of the stream to look at. Keep a password in the environment.
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
    /// The domain of JetStream that has the stream, as seen from a leaf node.
    #[arg(long, value_name = "NAME")]
    nats_domain: Option<String>,
    /// Where an account imports the API of JetStream that has the stream.
    #[arg(long, value_name = "PREFIX", conflicts_with = "nats_domain")]
    nats_api_prefix: Option<String>,
    /// The name of the stream.
    #[arg(long, value_name = "NAME", default_value = "EVENTS")]
    nats_stream: String,
    /// Over how many streams the destination spreads its partitions: `NAME-0`, `NAME-1` and so on.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    nats_streams: u32,
    /// The prefix of its subjects.
    #[arg(long, value_name = "PREFIX", default_value = "events")]
    nats_prefix: String,
}

impl StreamArguments {
    /// The stream, if its server is given.
    pub(crate) fn given(&self) -> Option<Result<Nats, Error>> {
        self.nats_url.as_ref().map(|url| self.connect(url, self.nats_credentials.as_ref()))
    }

    /// The stream on a server.
    pub(crate) fn connect(&self, url: &str, credentials: Option<&PathBuf>) -> Result<Nats, Error> {
        let mut options = NatsOptions::new(url).stream(&self.nats_stream).prefix(&self.nats_prefix);
        options = options.inbox_prefix(&self.nats_inbox_prefix).streams(self.nats_streams);
        if let Some(domain) = &self.nats_domain {
            options = options.domain(domain);
        }
        if let Some(prefix) = &self.nats_api_prefix {
            options = options.api_prefix(prefix);
        }
        if let Some(file) = credentials {
            options = options.credentials_file(file);
        }
        if let Some(file) = &self.nats_ca {
            options = options.ca_file(file);
        }
        Nats::with_options(options)
    }

    pub(crate) fn name(&self) -> &str {
        &self.nats_stream
    }
}
