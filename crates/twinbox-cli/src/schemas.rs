//! `twinbox schemas`.
mod check;
mod tables;

use crate::{connection::ConnectionArguments, exit::Exit, output::Output, session::Opened};
use check::CheckArguments;
use clap::Subcommand;
use tables::TablesCommand;

#[derive(Debug, Subcommand)]
pub(crate) enum SchemasCommand {
    /// Check that a build can read all waiting messages, before it is deployed. Exit code 6 if not.
    Check(CheckArguments),
    #[command(flatten)]
    Tables(TablesCommand),
}

pub(crate) async fn run(
    command: SchemasCommand,
    connection: ConnectionArguments,
    output: Output,
) -> Result<(), Exit> {
    match command {
        SchemasCommand::Check(arguments) => {
            let connection = arguments.connection(connection);
            match Opened::open(connection, output, true).await? {
                Opened::Postgres(session) => check::run(arguments, &session).await,
                Opened::MySql(session) => check::run(arguments, &session).await,
                Opened::Sqlite(session) => check::run(arguments, &session).await,
            }
        }
        SchemasCommand::Tables(command) => tables::run(command, connection, output).await,
    }
}
