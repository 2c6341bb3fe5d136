//! Facts about a stream, in its metadata: how many partitions it has, and which keys sign replays.
//!
//! Relays write them and consumers rely on them, because only a user with the right to change the stream can
//! write there. What is in the stream may come from anybody who publishes to it.
use crate::{connect::Connection, error::Error, options::NatsOptions, signer::Signer};
use async_nats::jetstream::stream::Info;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// How often facts are written until they stay.
const UPDATES_MAX: usize = 5;

/// Returns the name under which the number of partitions is in the metadata of a stream. With the prefix: a
/// stream may hold the messages of several destinations.
fn partitions_name(prefix: &str) -> String {
    format!("twinbox-partitions.{prefix}")
}

/// Returns the metadata of a stream that is created.
pub(crate) fn of_new_stream(options: &NatsOptions) -> HashMap<String, String> {
    HashMap::from([(partitions_name(&options.prefix), options.partitions.to_string())])
}

/// Returns the number of partitions below a prefix, if the stream says it.
pub(crate) fn partitions(info: &Info, prefix: &str) -> Option<u32> {
    info.config.metadata.get(&partitions_name(prefix))?.parse().ok()
}

/// Fails if the stream has another number of partitions.
pub(crate) fn check(info: &Info, options: &NatsOptions) -> Result<(), Error> {
    match partitions(info, &options.prefix) {
        Some(found) if found != options.partitions => Err(Error::mismatch(format!(
            "the stream `{}` has {found} partitions below `{}`, says its metadata, and the destination has \
             {}: the number stays as it is",
            options.stream, options.prefix, options.partitions
        ))),
        _ => Ok(()),
    }
}

/// Writes the facts of a relay into the metadata of its stream, unless they are there. A server that refuses
/// is no error: then consumers have to trust their own options, and take the messages of a replay for one
/// consumer for duplicates.
///
/// # Errors
/// The stream has another number of partitions, or the server is unavailable.
pub(crate) async fn write(connection: &Connection, info: &Info, signer: &Signer) -> Result<(), Error> {
    let options = &connection.options;
    check(info, options)?;
    let mut facts = of_new_stream(options);
    facts.insert(signer.replay_key(), options.id.clone());
    facts.retain(|name, value| info.config.metadata.get(name) != Some(&*value));
    // Older servers have no metadata.
    if facts.is_empty() || !connection.client.is_server_compatible(2, 10, 0) {
        return Ok(());
    }
    match update(connection, &facts).await {
        Err(error) if !error.is_transient() => {
            let facts =
                Vec::from_iter(facts.iter().map(|(name, value)| format!("--metadata={name}:{value}")));
            tracing::warn!(
                stream = options.stream,
                %error,
                missing = facts.join(" "),
                "the relay may not write into the metadata of its stream, where consumers look: let its user \
                 update the stream, or add what is missing with `nats stream edit`"
            );
            Ok(())
        }
        updated => updated,
    }
}

/// The part of the answer about a stream that an update needs.
#[derive(Deserialize)]
struct Found {
    config: Map<String, Value>,
}

/// Adds to the metadata. All else stays as the server has it, also what this library does not know. Another
/// relay that writes at the same time may undo it, so it is looked at again.
async fn update(connection: &Connection, facts: &HashMap<String, String>) -> Result<(), Error> {
    let stream = &connection.options.stream;
    let about = format!("the stream `{stream}`");
    for _ in 0..UPDATES_MAX {
        let Found { mut config } = connection.request(&about, format!("STREAM.INFO.{stream}")).await?;
        let mut metadata = match config.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        if facts.iter().all(|(name, value)| metadata.get(name).and_then(Value::as_str) == Some(value)) {
            return Ok(());
        }
        metadata.extend(facts.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        config.insert("metadata".to_owned(), metadata.into());
        let _: Value = connection.request_with(&about, format!("STREAM.UPDATE.{stream}"), &config).await?;
        tracing::info!(stream, facts = facts.len(), "wrote facts into the metadata of the stream");
    }
    Ok(())
}
