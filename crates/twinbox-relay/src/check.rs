//! `twinbox-relay check`: the file is read; this looks at the world.
use crate::{
    config::Config,
    program::Failure,
    setup::{destination, options},
};
use twinbox_sql::{Dialect, Store};

/// Messages, the newest ones, whose types are looked at.
const NEWEST: u32 = 10_000;

/// Prints what is found, a line each, and fails if anything has to change.
pub(crate) async fn run<DB: Dialect>(store: &Store<DB>, config: &Config) -> Result<(), Failure> {
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
    let service = format!("service {:?}, namespace {:?}", config.database.service, config.database.namespace);
    line("database".to_owned(), store.check().await.map(|()| service).map_err(|e| explain(&e)));
    let mut takers = Vec::new();
    for (id, configured) in &config.destinations {
        let found = async {
            let destination = destination(id, configured)?;
            takers.push((id.as_str(), options(config, id, false)?));
            destination.connect().await.map_err(|error| explain(&error))?;
            Ok::<_, Failure>("is there and takes messages".to_owned())
        };
        line(format!("destination {id}"), found.await.map_err(|error| error.to_string()));
    }
    match store.newest_types(NEWEST).await {
        Ok(types) => {
            for event_type in types {
                let taking = takers.iter().filter(|(_, options)| options.takes(&event_type));
                let ids: Vec<_> = taking.map(|(id, _)| *id).collect();
                let found = match &*ids {
                    [] => Err("goes nowhere: add it to `types` of a destination".to_owned()),
                    ids => Ok(format!("goes to {}", ids.join(", "))),
                };
                line(format!("type {event_type}"), found);
            }
        }
        Err(error) => line("types".to_owned(), Err(explain(&error))),
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
