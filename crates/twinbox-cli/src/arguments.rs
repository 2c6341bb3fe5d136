//! The commands of the tool.
#[cfg(feature = "console")]
use crate::console::{self, ConsoleArguments};
use crate::{
    audit::{self, AuditCommand},
    connection::ConnectionArguments,
    consumers::{self, ConsumersCommand},
    dead_letters::{self, DeadLettersCommand},
    destinations::{self, DestinationsCommand},
    doctor::{self, DoctorArguments},
    effects::{self, EffectsCommand},
    exit::{EXIT_CODES, Exit},
    grants::GrantsCommand,
    keys::{self, KeysCommand},
    messages::{self, MessagesCommand},
    operations::{self, OperationsCommand},
    output::OutputArguments,
    replays::{self, ReplaysCommand},
    schemas::SchemasCommand,
    session::Session,
    status::{self, StatusArguments},
    vendors::{self, VendorsCommand},
};
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use twinbox_sql::Dialect;

#[derive(Debug, Parser)]
#[command(
    name = "twinbox",
    version,
    about = "Operates the outbox, the inbox and everything between them",
    after_help = EXIT_CODES,
    max_term_width = 120
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Store(Box<StoreCommand>),
    /// The tables, and whether a build can read the messages in them.
    #[command(subcommand)]
    Schemas(SchemasCommand),
    /// The rights of database roles.
    #[command(subcommand)]
    Grants(GrantsCommand),
    /// The settings of this tool.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, as roff.
    Man,
}

/// Commands that work on the tables of a service.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Show destinations, consumers, running replays and vendors. Exit code 7 if something is wrong.
    Status(StatusArguments),
    /// Check the settings that protect messages from loss. Exit code 7 if one is wrong.
    Doctor(DoctorArguments),
    /// Destinations that messages are published to.
    #[command(subcommand)]
    Destinations(DestinationsCommand),
    /// Consumers that handle messages on this database.
    #[command(subcommand)]
    Consumers(ConsumersCommand),
    /// Single messages: their path, and parked ones.
    #[command(subcommand)]
    Messages(MessagesCommand),
    /// Message keys: redact one, or unblock one. Idempotency keys: list unfinished ones.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Messages that a relay or a consumer gave up.
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// Past messages again: resend them to a destination, or reprocess them with one consumer.
    #[command(subcommand)]
    Replays(ReplaysCommand),
    /// Idempotent requests that never finished.
    #[command(subcommand)]
    Operations(OperationsCommand),
    /// Side effects outside the database: mails, charges, calls of services.
    #[command(subcommand)]
    Effects(EffectsCommand),
    /// Vendors that side effects are sent to.
    #[command(subcommand)]
    Vendors(VendorsCommand),
    /// Changes that operators made with this tool.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Serve a web page of this tool.
    #[cfg(feature = "console")]
    Console(ConsoleArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the connection settings and their origin. Secrets are masked.
    Print,
}

impl StoreCommand {
    /// Whether the command is for a database that fails the usual checks.
    pub(crate) fn repairs(&self) -> bool {
        matches!(self, Self::Destinations(DestinationsCommand::Rebase { .. }))
    }

    /// Whether the command runs until somebody ends it.
    pub(crate) fn runs_long(&self) -> bool {
        #[cfg(feature = "console")]
        return matches!(self, Self::Console(_));
        #[cfg(not(feature = "console"))]
        false
    }

    pub(crate) async fn run<DB: Dialect>(self, session: &Session<DB>) -> Result<(), Exit> {
        match self.run_once(session).await {
            Err(exit) if exit.waited_for_lock => Err(session.with_locks(exit).await),
            ran => ran,
        }
    }

    async fn run_once<DB: Dialect>(self, session: &Session<DB>) -> Result<(), Exit> {
        match self {
            Self::Status(arguments) => status::run(&arguments, session).await,
            Self::Doctor(arguments) => doctor::run(&arguments, session).await,
            Self::Destinations(command) => destinations::run(command, session).await,
            Self::Consumers(command) => consumers::run(command, session).await,
            Self::Messages(command) => messages::run(command, session).await,
            Self::Keys(command) => keys::run(command, session).await,
            Self::DeadLetters(command) => dead_letters::run(command, session).await,
            Self::Replays(command) => replays::run(command, session).await,
            Self::Operations(command) => operations::run(command, session).await,
            Self::Effects(command) => effects::run(command, session).await,
            Self::Vendors(command) => vendors::run(command, session).await,
            Self::Audit(command) => audit::run(command, session).await,
            #[cfg(feature = "console")]
            Self::Console(arguments) => console::run(&arguments, session).await,
        }
    }
}
