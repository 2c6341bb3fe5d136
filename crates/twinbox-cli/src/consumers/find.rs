//! Finding a consumer by its name.
use crate::exit::Exit;
use std::collections::BTreeSet;
use twinbox_ops::{ConsumerInfo, Ops, ReaderStatus};
use twinbox_sql::{Dialect, Error, ReaderName};

/// # Errors
/// No such consumer: the error names the existing ones.
pub(crate) async fn find_consumer<DB: Dialect>(ops: &Ops<DB>, name: &str) -> Result<ConsumerInfo, Exit> {
    let mut consumers = ops.consumers().await?;
    match consumers.iter().position(|record| record.consumer == name) {
        Some(index) => Ok(consumers.swap_remove(index)),
        None => {
            let names = consumers.into_iter().map(|record| record.consumer).collect();
            Err(Exit::not_found(unknown_consumer(name, &names)))
        }
    }
}

/// The names of all consumers that have run on this database, also of those that only read its log.
pub(crate) async fn consumer_names<DB: Dialect>(ops: &Ops<DB>) -> Result<BTreeSet<String>, Exit> {
    Ok(names_with(ops, &ops.readers().await?).await?)
}

/// The same, if the readers are known.
pub(crate) async fn names_with<DB: Dialect>(
    ops: &Ops<DB>,
    readers: &[ReaderStatus],
) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::from_iter(ops.consumer_names().await?);
    names.extend(readers.iter().filter_map(|reader| match reader.name.parse() {
        Ok(ReaderName::Consumer(name)) => Some(name),
        _ => None,
    }));
    Ok(names)
}

/// The error text for a name that is not among these.
pub(crate) fn unknown_consumer(name: &str, known: &BTreeSet<String>) -> String {
    match known.len() {
        0 => format!("consumer {name:?} is unknown: none has ever run on this database"),
        _ => {
            let known = Vec::from_iter(known.iter().map(String::as_str)).join(", ");
            format!("consumer {name:?} is unknown: known are {known}")
        }
    }
}
