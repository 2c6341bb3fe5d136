//! The rights that database roles need.
use crate::{exit::Exit, output::say, place::Place};
use clap::Subcommand;
use twinbox_sql::Role;

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Print the statements that give roles of Postgres the rights for a purpose. The owner of the tables runs them, after
    /// every migration. Needs no database.
    Print {
        /// The name of a database role, and `producer`, `runtime`, `keeper`, `operator` or `redactor`. May be given several
        /// times. Without: one role for each purpose, `shop_producer` and so on.
        #[arg(long = "role", value_name = "NAME=PURPOSE", value_parser = role)]
        roles: Vec<(String, Role)>,
    },
}

/// The name of a role and its purpose.
pub(crate) fn role(text: &str) -> Result<(String, Role), String> {
    let (name, purpose) = text.rsplit_once('=').ok_or("write `NAME=PURPOSE`, like `billing=runtime`")?;
    Ok((name.to_owned(), purpose.parse()?))
}

pub(crate) fn run(command: GrantsCommand, place: &Place) -> Result<(), Exit> {
    let GrantsCommand::Print { roles } = command;
    say(twinbox_sql::grants_sql(place.namespace(), &roles)?.trim_end());
    Ok(())
}
