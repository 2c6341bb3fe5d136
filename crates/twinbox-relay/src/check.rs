//! The command `check`: checks the database, the destinations, and the route of each type.
use crate::{
    config::Config,
    failure::Failure,
    options::RelayOptions,
    schemas::Schemas,
    setup::{destination, options},
    vendors::vendor,
};
use twinbox_log::Log;
use twinbox_sql::Dialect;

/// The number of newest messages whose types are checked.
const NEWEST_MESSAGES: u32 = 10_000;

/// Prints a line for each check. Fails if something has to change.
pub(crate) async fn run<DB: Dialect>(schemas: &Schemas<DB>, config: &Config) -> Result<(), Failure> {
    let mut problems = 0;
    let mut print = |subject: String, result: Result<String, String>| {
        let (mark, text) = match result {
            Ok(text) => ("ok  ", text),
            Err(text) => {
                problems += 1;
                ("FAIL", text)
            }
        };
        println!("{mark}  {subject}: {text}");
    };
    for schema in schemas.all() {
        let found = format!("service {:?}, namespace {:?}", schema.store.service(), schema.name);
        let result = schema.store.check().await.map(|()| found);
        print(schema.title.clone(), result.map_err(|error| chain(&error)));
    }
    let mut routes = Vec::new();
    for (id, configured) in &config.destinations {
        let result = async {
            let destination = destination(id, configured)?;
            routes.push((id.as_str(), config.outbox_of(id), options(config, id, false)?));
            destination.connect().await.map_err(|error| chain(&error))?;
            Ok::<_, Failure>("is there and takes messages".to_owned())
        };
        print(format!("destination {id}"), result.await.map_err(|error| error.to_string()));
    }
    for (name, configured) in &config.vendors {
        let result = vendor(name, config).map(|_| format!("{} by {}", configured.url, configured.profile));
        print(format!("vendor {name}"), result.map_err(|error| error.to_string()));
    }
    for schema in schemas.all() {
        let of = if schemas.are_several() { format!(" of {}", schema.name) } else { String::new() };
        let types = match Log::new(&schema.store).recent_types(NEWEST_MESSAGES).await {
            Ok(types) => types,
            Err(error) => {
                print(format!("types{of}"), Err(chain(&error)));
                continue;
            }
        };
        for event_type in types {
            let takes = |(_, namespace, options): &&(_, &str, RelayOptions)| {
                *namespace == schema.name && options.takes(&event_type)
            };
            let ids: Vec<_> = routes.iter().filter(takes).map(|(id, ..)| *id).collect();
            let result = match &*ids {
                [] => Err("goes nowhere: add it to `types` of a destination".to_owned()),
                ids => Ok(format!("goes to {}", ids.join(", "))),
            };
            print(format!("type {event_type}{of}"), result);
        }
    }
    match problems {
        0 => Ok(()),
        1 => Err("one thing has to change".into()),
        n => Err(format!("{n} things have to change").into()),
    }
}

/// The text of an error and of all its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
