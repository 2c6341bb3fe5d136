//! `twinbox-relay check`: the file is read; this looks at the world.
use crate::{
    config::Config,
    program::{Failure, destination, options},
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
    for (id, configured) in &config.destinations {
        let what = format!("destination {id}");
        let found = match options(config, id, false).and_then(|_| destination(id, configured)) {
            Ok(destination) => match destination.connect().await {
                Ok(_) => Ok("is there and takes messages".to_owned()),
                Err(error) => Err(explain(&error)),
            },
            Err(error) => Err(error.to_string()),
        };
        line(what, found);
    }
    for event_type in store.newest_types(NEWEST).await.unwrap_or_default() {
        let takes = |id: &&String| options(config, id, false).is_ok_and(|options| options.takes(&event_type));
        let takers: Vec<_> = config.destinations.keys().filter(takes).map(String::as_str).collect();
        let found = if takers.is_empty() {
            Err("goes nowhere: add it to `types` of a destination".to_owned())
        } else {
            Ok(format!("goes to {}", takers.join(", ")))
        };
        line(format!("type {event_type}"), found);
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
