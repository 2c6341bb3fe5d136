//! The operator tool `twinbox`. `README.md` beside the manifest is its runbook.
//!
//! The tool writes only to the database that it connects to. Relays and consumers execute its requests. A
//! command that changes something shows the change and the database, asks, and writes an entry to the table
//! `audit`.
mod arguments;
mod audit;
mod change;
mod connection;
#[cfg(feature = "console")]
mod console;
mod consumers;
mod dead_letters;
mod destinations;
mod doctor;
mod effects;
mod exit;
mod finding;
mod grants;
mod keys;
mod message_text;
mod messages;
mod operations;
mod output;
mod replays;
mod schemas;
mod selection;
mod session;
mod status;
#[cfg(feature = "nats")]
mod stream;
mod time;
mod vendors;

use arguments::{Arguments, Command, ConfigCommand};
use clap::{CommandFactory as _, Parser as _};
use exit::Exit;
use output::{Output, print_line};
use session::Opened;
use std::process::ExitCode;

/// Runs the tool with the arguments and the environment of the process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(Exit::failure(format!("starting the runtime failed: {error}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

async fn run(arguments: Arguments) -> Result<(), Exit> {
    let Arguments { connection, output, command } = arguments;
    let output = Output::new(&output);
    match command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "twinbox", &mut script);
            print_line(String::from_utf8_lossy(&script).trim_end());
            Ok(())
        }
        Command::Man => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Arguments::command()).render(&mut page);
            rendered.map_err(|error| Exit::failure(format!("writing the manual page failed: {error}")))?;
            print_line(String::from_utf8_lossy(&page).trim_end());
            Ok(())
        }
        Command::Config(ConfigCommand::Print) => connection.print(&output),
        Command::Grants(command) => grants::run(command, connection, output).await,
        Command::Schemas(command) => schemas::run(command, connection, output).await,
        Command::Store(command) => {
            let connection = if command.runs_long() { connection.following_file() } else { connection };
            match Opened::open(connection, output, !command.repairs()).await? {
                Opened::Postgres(session) => command.run(&session).await,
                Opened::MySql(session) => command.run(&session).await,
                Opened::Sqlite(session) => command.run(&session).await,
            }
        }
    }
}
