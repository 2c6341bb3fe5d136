//! `twinbox grants print --nats`: users of NATS and their permissions.
use crate::exit::{Exit, invalid};
use clap::Args;
use twinbox_nats::{Nats, NatsOptions, StreamOptions, UserPurpose};

#[derive(Debug, Args)]
#[command(next_help_heading = "NATS")]
pub(crate) struct BrokerArguments {
    /// Print the users of NATS, for the configuration of the server, and no SQL.
    #[arg(long, conflicts_with_all = ["mysql", "roles"])]
    pub(crate) nats: bool,
    /// A user of NATS and its purpose: `relay`, `consumer:NAME`, `ordered-consumer:NAME` or `operator`.
    /// Repeatable. Default: the users of BROKER.md.
    #[arg(long = "user", value_name = "NAME=PURPOSE", value_parser = parse_user, requires = "nats")]
    users: Vec<(String, UserPurpose)>,
    /// The name of the stream.
    #[arg(long, value_name = "NAME", default_value = "EVENTS")]
    nats_stream: String,
    /// Over how many streams the destination spreads its partitions.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    nats_streams: u32,
    /// The prefix of its subjects.
    #[arg(long, value_name = "PREFIX", default_value = "events")]
    nats_prefix: String,
    /// The domain of JetStream that has the stream, as seen from a leaf node.
    #[arg(long, value_name = "NAME")]
    nats_domain: Option<String>,
    /// Where an account imports the API of JetStream that has the stream.
    #[arg(long, value_name = "PREFIX", conflicts_with = "nats_domain")]
    nats_api_prefix: Option<String>,
    /// The relay creates the stream.
    #[arg(long, requires = "nats")]
    create_stream: bool,
}

/// Parses a user and its purpose.
fn parse_user(text: &str) -> Result<(String, UserPurpose), String> {
    let (name, purpose) = text.split_once('=').ok_or("write `NAME=PURPOSE`, like `relay=relay`")?;
    let purpose = match purpose.split_once(':') {
        None if purpose == "relay" => UserPurpose::Relay,
        None if purpose == "operator" => UserPurpose::Operator,
        Some(("consumer", consumer)) => UserPurpose::Consumer(consumer.to_owned()),
        Some(("ordered-consumer", consumer)) => UserPurpose::OrderedConsumer(consumer.to_owned()),
        _ => {
            return Err(format!(
                "no purpose {purpose:?}: write `relay`, `consumer:NAME`, `ordered-consumer:NAME` or \
                 `operator`"
            ));
        }
    };
    Ok((name.to_owned(), purpose))
}

/// The users of the page.
fn documented() -> Vec<(String, UserPurpose)> {
    [
        ("relay", UserPurpose::Relay),
        ("billing", UserPurpose::Consumer("billing.invoice".to_owned())),
        ("search", UserPurpose::OrderedConsumer("search.index".to_owned())),
        ("operator", UserPurpose::Operator),
    ]
    .map(|(name, purpose)| (name.to_owned(), purpose))
    .to_vec()
}

impl BrokerArguments {
    fn options(&self, user: &str, purpose: &UserPurpose) -> NatsOptions {
        let mut options = NatsOptions::new("nats://localhost")
            .stream(&self.nats_stream)
            .streams(self.nats_streams)
            .prefix(&self.nats_prefix)
            .inbox_prefix(format!("_INBOX_{user}"));
        if let Some(domain) = &self.nats_domain {
            options = options.domain(domain);
        }
        if let Some(prefix) = &self.nats_api_prefix {
            options = options.api_prefix(prefix);
        }
        if self.create_stream && *purpose == UserPurpose::Relay {
            options = options.create_stream(StreamOptions::default());
        }
        options
    }

    /// Returns the block `authorization` of the server's configuration.
    pub(crate) fn authorization(&self) -> Result<String, Exit> {
        let users = if self.users.is_empty() { documented() } else { self.users.clone() };
        let mut text = "authorization {\n  users: [\n".to_owned();
        for (user, purpose) in &users {
            let nats = Nats::with_options(self.options(user, purpose));
            let permissions = nats.and_then(|nats| nats.permissions(purpose));
            let permissions = permissions.map_err(|error| invalid(&format!("the user {user:?}"), error))?;
            let permissions = permissions.to_string().replace('\n', "\n      ");
            let variable = user.to_uppercase().replace(['-', '.'], "_");
            text += &format!(
                "    {{\n      user: {user}, password: ${variable}_PASSWORD\n      {permissions}\n    }}\n"
            );
        }
        Ok(text + "  ]\n}")
    }
}
