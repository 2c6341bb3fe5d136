//! `twinbox dead-letters import`.
use super::file::{Line, at, read, require_same_database};
use crate::{
    change::{Change, ChangeArguments, Done},
    consumers::find::{consumer_names, unknown_consumer},
    exit::Exit,
    output::counted,
    session::Session,
};
use std::{collections::BTreeMap, path::Path};
use twinbox_core::{Draft, Message};
use twinbox_ops::dead_letters::DeadLetterId;
use twinbox_sql::{Dialect, ErrorKind};

/// Messages that one transaction publishes.
const PUBLISH_BATCH: usize = 200;

const COMMAND: &str = "dead-letters import";

/// Gives the messages of a file to the consumers that gave them up, and to no others.
pub(super) async fn import_for_consumers<DB: Dialect>(
    session: &Session<DB>,
    file: &Path,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    let messages = messages(session, file).await?;
    let consumers = messages.iter().map(|(consumer, messages)| format!("{consumer} ({})", messages.len()));
    let effect = format!(
        "This will give {} of {} to {}, as new messages. No other consumer gets them. The dead letters stay.",
        counted(messages.values().map(|messages| messages.len() as u64).sum(), "message"),
        file.display(),
        Vec::from_iter(consumers).join(", ")
    );
    let act = async || {
        let mut added = 0;
        for (consumer, messages) in &messages {
            added += session.ops.import_dead_letters(consumer, messages).await?;
        }
        Ok(Done::new(
            added,
            format!("{} imported. Their consumers handle them now.", counted(added, "message")),
        ))
    };
    let target = file.display().to_string();
    change.run(session, &Change { command: COMMAND, target: &target, effect }, act).await
}

/// Publishes the messages of a file: every consumer of their types gets them.
pub(super) async fn publish_to_all<DB: Dialect>(
    session: &Session<DB>,
    file: &Path,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    let drafts =
        read(file)?.into_iter().map(|(n, line)| line.draft(session).map_err(|error| at(file, n, &error)));
    let drafts: Vec<Draft> = drafts.collect::<Result<_, _>>()?;
    require_lines(file, drafts.len())?;
    if session.ops.readers().await?.is_empty() {
        return Err(Exit::refused(
            "no destination and no consumer reads this log: publish on the database that the consumers read \
             from",
        ));
    }
    let effect = format!(
        "This will publish {} of {} as new messages. Every consumer of their types gets them, also a \
         consumer that has \
         handled the old ones. The dead letters stay.",
        counted(drafts.len() as u64, "message"),
        file.display()
    );
    let act = async || {
        let mut published = 0;
        for batch in drafts.chunks(PUBLISH_BATCH) {
            let mut tx = session.store.engine().begin().await?;
            session.store.outbox().publish_all(&mut tx, batch.to_vec()).await?;
            tx.commit().await?;
            published += batch.len() as u64;
        }
        Ok(Done::new(published, format!("{} published.", counted(published, "message"))))
    };
    let target = format!("{}, to all consumers", file.display());
    change.run(session, &Change { command: COMMAND, target: &target, effect }, act).await
}

/// The messages by consumer. All lines are checked before anything is changed.
async fn messages<DB: Dialect>(
    session: &Session<DB>,
    file: &Path,
) -> Result<BTreeMap<String, Vec<Message>>, Exit> {
    let lines = read(file)?;
    require_lines(file, lines.len())?;
    let known = consumer_names(&session.ops).await?;
    let mut messages: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for (n, line) in lines {
        let invalid = |error: &str| at(file, n, error);
        require_same_database(file, n, &line, session.store.service(), &session.database)?;
        let id = line.id().map_err(|error| invalid(&error))?;
        if matches!(id, DeadLetterId::OfDestination(..)) {
            return Err(invalid(&format!(
                "dead letter {id} is of a destination, not of a consumer: publish it with --to-all-consumers"
            )));
        }
        let Line { owner, source, .. } = &line;
        if !known.contains(owner) {
            return Err(Exit::not_found(format!(
                "{}, line {n}: {}",
                file.display(),
                unknown_consumer(owner, &known)
            )));
        }
        let (consumer, source) = (owner.clone(), source.clone());
        let draft = line.draft(session).map_err(|error| invalid(&error))?;
        require_not_redacted(session, file, n, &id).await?;
        let draft = session.store.encode(&source, draft)?;
        messages.entry(consumer).or_default().push(draft.into_message(&source));
    }
    Ok(messages)
}

fn require_lines(file: &Path, lines: usize) -> Result<(), Exit> {
    if lines > 0 {
        return Ok(());
    }
    Err(Exit::usage(format!("{} contains no dead letter", file.display())))
}

/// A file from before a redaction still has the payload.
async fn require_not_redacted<DB: Dialect>(
    session: &Session<DB>,
    file: &Path,
    n: usize,
    id: &DeadLetterId,
) -> Result<(), Exit> {
    match session.ops.dead_letter_message(id).await {
        Ok(message) if message.is_redacted() => Err(Exit::refused(format!(
            "{}, line {n}: dead letter {id} was redacted after the export: remove the line",
            file.display()
        ))),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}
