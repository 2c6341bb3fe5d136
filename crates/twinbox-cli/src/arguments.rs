//! What can be asked of the tool.
use crate::{
    audit, check, consumers, dead_letters, destinations, doctor,
    exit::{EXIT_CODES, Exit},
    grants, keys, message, migrate,
    output::{Output, OutputArguments},
    place::Place,
    replay, status,
};
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use twinbox_sql::{Dialect, Store};

#[derive(Debug, Parser)]
#[command(
    name = "twinbox",
    version,
    about = "Looks after the outbox, the inbox and what lies between them",
    after_help = EXIT_CODES,
    max_term_width = 120
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How destinations, consumers and replays are doing. Ends with 7 if something is wrong.
    Status(status::StatusArguments),
    /// Past messages again: to a destination that lost them, or for a consumer to run again.
    #[command(subcommand)]
    Replay(replay::ReplayCommand),
    /// What relays and consumers have given up.
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLettersCommand),
    /// Where messages are published to.
    #[command(subcommand)]
    Destinations(destinations::DestinationsCommand),
    /// Who handles messages on this database.
    #[command(subcommand)]
    Consumers(consumers::ConsumersCommand),
    /// Idempotency keys of requests.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// One message, and what became of it.
    #[command(subcommand)]
    Message(message::MessageCommand),
    /// Whether everything is set up so that nothing is lost. Ends with 7 if not.
    Doctor(doctor::DoctorArguments),
    /// Whether a build can read what waits for it, before it is deployed. Ends with 6 if not.
    Check(check::CheckArguments),
    /// What was done with this tool, newest first.
    Audit(audit::AuditArguments),
    /// The tables.
    #[command(subcommand)]
    Migrate(migrate::MigrateCommand),
    /// The rights that database roles need.
    #[command(subcommand)]
    Grants(grants::GrantsCommand),
    /// What the tool connects to, and where it has that from. Secrets are masked.
    Config,
    /// A script for completions, for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// The manual page, as roff.
    Man,
}

impl Command {
    /// Whether it is for a database that is not fit to be worked with.
    pub(crate) fn repairs(&self) -> bool {
        matches!(self, Self::Destinations(destinations::DestinationsCommand::Rebase { .. }))
    }

    /// Where it is done.
    pub(crate) fn place(&self, place: Place) -> Place {
        if let Self::Check(arguments) = self { arguments.place(place) } else { place }
    }

    pub(crate) async fn run<DB: Dialect>(
        self,
        store: &Store<DB>,
        place: &Place,
        output: &Output,
    ) -> Result<(), Exit> {
        match self {
            Self::Status(arguments) => status::run(arguments, store, output).await,
            Self::Replay(command) => replay::run(command, store, place, output).await,
            Self::DeadLetters(command) => dead_letters::run(command, store, output).await,
            Self::Destinations(command) => destinations::run(command, store, output).await,
            Self::Consumers(command) => consumers::run(command, store, output).await,
            Self::Keys(command) => keys::run(command, store, output).await,
            Self::Message(command) => message::run(command, store, output).await,
            Self::Doctor(arguments) => doctor::run(&arguments, store, place, output).await,
            Self::Check(arguments) => check::run(arguments, store, output).await,
            Self::Audit(arguments) => audit::run(&arguments, store, output).await,
            Self::Migrate(_) | Self::Grants(_) | Self::Config | Self::Completions { .. } | Self::Man => {
                unreachable!("they are done without a store")
            }
        }
    }
}
