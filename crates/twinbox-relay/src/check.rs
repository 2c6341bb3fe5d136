//! The command `check`: looks at the database, the destinations, and the route of each type. It creates
//! nothing, and finds what `run` would refuse.
use crate::{
    config::Config,
    failure::Failure,
    https,
    options::RelayOptions,
    otlp::Otlp,
    schemas::{Schema, Schemas},
    setup,
    vendors::vendor,
};
use std::error::Error;
use twinbox_core::{Destination, endpoint::masked_url};
use twinbox_log::{Log, Reader};
use twinbox_sql::Dialect;

/// The number of newest messages whose types are checked.
const NEWEST_MESSAGES: u32 = 10_000;

/// Prints a line for each check. Fails if something has to change.
///
/// `keepers`: the same schemas over the connections of the keeper, if it has a database URL of its own.
pub(crate) async fn run<DB: Dialect>(
    schemas: &Schemas<DB>,
    keepers: Option<&Schemas<DB>>,
    config: &Config,
) -> Result<(), Failure> {
    let mut lines = Lines::default();
    let mut readable = Vec::new();
    for schema in schemas.all() {
        let found = schema.store.check().await;
        if found.is_ok() {
            readable.push(&*schema.name);
        }
        lines.print(&schema.title, found.map(|()| of_service(schema)).map_err(Failure::from));
    }
    for schema in keepers.into_iter().flat_map(Schemas::of_main_database) {
        let found = schema.store.check().await.map(|()| of_service(schema));
        lines.print(&format!("keeper of {}", schema.title), found.map_err(Failure::from));
    }
    for schema in schemas.by_database().iter().filter_map(|schemas| schemas.first()) {
        warn(&schema.title, of_connections(schema));
    }
    if let Some(schema) = keepers.and_then(|keepers| keepers.of_main_database().next()) {
        warn(&format!("keeper of {}", schema.title), of_connections(schema));
    }
    match Otlp::check_env(config.collector.allow_plain) {
        Ok(warnings) => warn("collector", warnings),
        Err(error) => lines.print("collector", Err(error)),
    }
    let mut routes = Vec::new();
    for (id, configured) in &config.destinations {
        let made = setup::destination(id, configured)
            .and_then(|made| Ok((made, setup::options(config, id, false)?)));
        let (destination, options) = match made {
            Ok(made) => made,
            Err(error) => {
                lines.print(&format!("destination {id}"), Err(error));
                continue;
            }
        };
        let subject = format!("destination {id}");
        match of_destination(&*destination, &options).await {
            Ok((found, warnings)) => {
                lines.print(&subject, Ok(found));
                warn(&subject, warnings);
            }
            Err(error) => lines.print(&subject, Err(error)),
        }
        let schema = schemas.named(config.outbox_of(id))?;
        if readable.contains(&&*schema.name) {
            let options = options.of_reader(&*destination);
            let checked = Reader::check(&schema.store, id, &options).await;
            lines.print_fault(&format!("cursor {id}"), checked.map_err(Failure::from));
        }
        routes.push((id.as_str(), &*schema.name, options));
    }
    for (name, configured) in &config.vendors {
        let url = masked_url(&configured.url);
        let found = vendor(name, config).map(|_| format!("{url} by {}", configured.profile));
        lines.print(&format!("vendor {name}"), found);
        let protection = https::protection(&configured.url, configured.allow_plain);
        warn(&format!("vendor {name}"), protection.ok().and_then(|protection| protection.warning()));
    }
    for schema in schemas.all() {
        types(schema, schemas.are_several(), &routes, &mut lines).await;
    }
    match lines.problems {
        0 => Ok(()),
        1 => Err("one thing has to change".into()),
        n => Err(format!("{n} things have to change").into()),
    }
}

fn of_service<DB: Dialect>(schema: &Schema<DB>) -> String {
    format!("service {:?}, namespace {:?}", schema.store.service(), schema.name)
}

/// Returns a warning if the file allows connections of a store without TLS, and they may be.
fn of_connections<DB: Dialect>(schema: &Schema<DB>) -> Option<String> {
    DB::protection(&schema.store.pool().connect_options(), true).ok()?.warning()
}

/// Returns what was found, and warnings.
async fn of_destination(
    destination: &dyn Destination,
    options: &RelayOptions,
) -> Result<(String, Vec<String>), Failure> {
    let found = destination.check().await?;
    options.check_lease(found.timeout)?;
    let text = match found.creates {
        None => "is there and takes messages".to_owned(),
        Some(missing) => format!("{missing} is not there yet: `run` creates it"),
    };
    Ok((text, found.warnings))
}

/// Prints where the newest types of a schema go. `routes`: the id of each destination, its schema, and its
/// options.
async fn types<DB: Dialect>(
    schema: &Schema<DB>,
    are_several: bool,
    routes: &[(&str, &str, RelayOptions)],
    lines: &mut Lines,
) {
    let of = if are_several { format!(" of {}", schema.name) } else { String::new() };
    let types = match Log::new(&schema.store).recent_types(NEWEST_MESSAGES).await {
        Ok(types) => types,
        Err(error) => return lines.print(&format!("types{of}"), Err(error.into())),
    };
    for event_type in types {
        let takes = |(_, namespace, options): &&(&str, &str, RelayOptions)| {
            *namespace == schema.name && options.takes(&event_type)
        };
        let ids: Vec<_> = routes.iter().filter(takes).map(|(id, ..)| *id).collect();
        let result = match &*ids {
            [] => Err("goes nowhere: add it to `types` of a destination".into()),
            ids => Ok(format!("goes to {}", ids.join(", "))),
        };
        lines.print(&format!("type {event_type}{of}"), result);
    }
}

/// The lines that are printed.
#[derive(Default)]
struct Lines {
    problems: usize,
}

impl Lines {
    fn print(&mut self, subject: &str, result: Result<String, Failure>) {
        match result {
            Ok(text) => println!("ok    {subject}: {text}"),
            Err(error) => {
                self.problems += 1;
                println!("FAIL  {subject}: {}", chain(&*error));
            }
        }
    }

    /// Prints a line only if something is wrong.
    fn print_fault<T>(&mut self, subject: &str, result: Result<T, Failure>) {
        if let Err(error) = result {
            self.print(subject, Err(error));
        }
    }
}

/// Prints a line for each thing that works and is a risk. It fails no check.
fn warn(subject: &str, warnings: impl IntoIterator<Item = String>) {
    warnings.into_iter().for_each(|warning| println!("WARN  {subject}: {warning}"));
}

/// The text of an error and of all its sources.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
