//! `twinbox-relay check`: the file is read; this looks at the world.
use crate::{
    RelayOptions,
    config::Config,
    program::Failure,
    schemas::Schemas,
    setup::{destination, options},
};
use twinbox_sql::Dialect;

/// Messages, the newest ones, whose types are looked at.
const NEWEST: u32 = 10_000;

/// Prints what is found, a line each, and fails if anything has to change.
pub(crate) async fn run<DB: Dialect>(schemas: &Schemas<DB>, config: &Config) -> Result<(), Failure> {
    let mut problems = 0;
    let mut line = |what: String, found: Result<String, String>| {
        let (mark, text) = match found {
            Ok(text) => ("ok  ", text),
            Err(text) => {
                problems += 1;
                ("FAIL", text)
            }
        };
        println!("{mark}  {what}: {text}");
    };
    for schema in schemas.all() {
        let service = format!("service {:?}, namespace {:?}", schema.store.service(), schema.name);
        line(schema.title.clone(), schema.store.check().await.map(|()| service).map_err(|e| explain(&e)));
    }
    let mut takers = Vec::new();
    for (id, configured) in &config.destinations {
        let found = async {
            let destination = destination(id, configured)?;
            takers.push((id.as_str(), config.namespace_of(id), options(config, id, false)?));
            destination.connect().await.map_err(|error| explain(&error))?;
            Ok::<_, Failure>("is there and takes messages".to_owned())
        };
        line(format!("destination {id}"), found.await.map_err(|error| error.to_string()));
    }
    for schema in schemas.all() {
        let of = if schemas.are_several() { format!(" of {}", schema.name) } else { String::new() };
        let types = match schema.store.newest_types(NEWEST).await {
            Ok(types) => types,
            Err(error) => {
                line(format!("types{of}"), Err(explain(&error)));
                continue;
            }
        };
        for event_type in types {
            let takes = |(_, of, options): &&(_, &str, RelayOptions)| {
                *of == schema.name && options.takes(&event_type)
            };
            let ids: Vec<_> = takers.iter().filter(takes).map(|(id, ..)| *id).collect();
            let found = match &*ids {
                [] => Err("goes nowhere: add it to `types` of a destination".to_owned()),
                ids => Ok(format!("goes to {}", ids.join(", "))),
            };
            line(format!("type {event_type}{of}"), found);
        }
    }
    match problems {
        0 => Ok(()),
        1 => Err("one thing has to change".into()),
        n => Err(format!("{n} things have to change").into()),
    }
}

fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
