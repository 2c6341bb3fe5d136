//! Twinbox's tool for operators. `README.md` beside the manifest is its runbook.
//!
//! It writes to the database of the service that it is asked about, and to nothing else: relays and consumers execute what
//! it asks for. What changes something says first how much, asks, and leaves an entry in the table `audit`.
mod arguments;
mod ask;
mod audit;
mod check;
mod consumers;
mod dead_letters;
mod destinations;
mod doctor;
mod exit;
mod grants;
mod keys;
mod letters_file;
mod message;
mod migrate;
mod output;
mod place;
mod progress;
mod replay;
mod selection;
mod status;
mod time;

use arguments::{Arguments, Command};
use clap::{CommandFactory as _, Parser as _};
use exit::Exit;
use output::Output;
use place::Opened;
use std::{io, process::ExitCode};

/// Runs the tool on the process's arguments and environment.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(Exit::failure(format!("no runtime: {error}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.tell(),
    }
}

async fn run(arguments: Arguments) -> Result<(), Exit> {
    let Arguments { place, output, command } = arguments;
    let output = Output::new(&output);
    match command {
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "twinbox", &mut io::stdout());
            Ok(())
        }
        Command::Man => clap_mangen::Man::new(Arguments::command())
            .render(&mut io::stdout())
            .map_err(|error| Exit::failure(error.to_string())),
        Command::Config => place.print(&output),
        Command::Grants(command) => grants::run(command, &place),
        Command::Migrate(command) => migrate::run(command, &place, &output).await,
        command => match command.place(place.clone()).open(!command.repairs()).await? {
            Opened::Postgres(store) => command.run(&store, &place, &output).await,
            Opened::Sqlite(store) => command.run(&store, &place, &output).await,
        },
    }
}
