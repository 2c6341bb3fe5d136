//! `twinbox dead-letters`.
mod export;
mod file;
mod filter;
mod import;
pub(crate) mod row;

use crate::{
    change::{Change, ChangeArguments, Done, print_done},
    exit::Exit,
    message_text::message_text,
    output::{counted, note},
    session::Session,
};
use clap::Subcommand;
use file::Line;
use filter::FilterArguments;
use row::{DeadLetterRow, GroupRow};
use std::{path::PathBuf, time::Duration};
use twinbox_ops::dead_letters::{DeadLetterFilter, DeadLetterId};
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List dead letters in groups with a common cause: owner, type and error.
    List {
        #[command(flatten)]
        filter: FilterArguments,
        /// List each dead letter instead of the groups, oldest first.
        #[arg(long)]
        each: bool,
        /// The number of rows.
        #[arg(long, default_value_t = 200, value_name = "NUMBER")]
        limit: usize,
    },
    /// Show one dead letter with its message.
    Show {
        /// Its id: `12`, or `nats@345`.
        id: DeadLetterId,
    },
    /// Retry dead letters. They may arrive after later messages of their keys.
    Redrive {
        #[command(flatten)]
        filter: FilterArguments,
        /// The number of dead letters a second.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        rate: Option<u32>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Delete dead letters. Their messages never run. Requires --reason.
    Discard {
        #[command(flatten)]
        filter: FilterArguments,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Write dead letters with their messages as lines of JSON: to keep, or to mend and import.
    Export {
        #[command(flatten)]
        filter: FilterArguments,
        /// The new file. Default: stdout.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Give exported and mended messages to the consumers that gave them up, as new messages. A second import
    /// of the same file adds nothing.
    Import {
        /// The file.
        file: PathBuf,
        /// Publish the messages instead: every consumer of their types gets them, also one that has handled
        /// the old ones.
        #[arg(long)]
        to_all_consumers: bool,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

const NONE: &str = "There are no dead letters.";

pub(crate) async fn run<DB: Dialect>(command: DeadLettersCommand, session: &Session<DB>) -> Result<(), Exit> {
    match command {
        DeadLettersCommand::List { filter, each, limit } => {
            let filter = filter.filter(session).await?;
            if each { list_each(session, &filter, limit).await } else { list(session, &filter, limit).await }
        }
        DeadLettersCommand::Show { id } => show(session, &id).await,
        DeadLettersCommand::Redrive { filter, rate, change } => {
            redrive(session, &filter, rate, &change).await
        }
        DeadLettersCommand::Discard { filter, change } => discard(session, &filter, &change).await,
        DeadLettersCommand::Export { filter, file } => {
            let chosen = filter.choose(session).await?;
            export::export(session, &chosen.dead_letters, file.as_deref()).await?;
            chosen.require_complete()
        }
        DeadLettersCommand::Import { file, to_all_consumers: true, change } => {
            import::publish_to_all(session, &file, &change).await
        }
        DeadLettersCommand::Import { file, to_all_consumers: false, change } => {
            import::import_for_consumers(session, &file, &change).await
        }
    }
}

async fn list<DB: Dialect>(
    session: &Session<DB>,
    filter: &DeadLetterFilter,
    limit: usize,
) -> Result<(), Exit> {
    let groups = session.ops.dead_letter_groups(filter).await?;
    let rows: Vec<_> = groups.iter().take(limit).map(GroupRow::from).collect();
    session.output.texts(&rows, NONE, GroupRow::render);
    note_more(groups.len(), limit);
    Ok(())
}

async fn list_each<DB: Dialect>(
    session: &Session<DB>,
    filter: &DeadLetterFilter,
    limit: usize,
) -> Result<(), Exit> {
    let (mut rows, mut count) = (Vec::new(), 0);
    let see = |dead_letter| {
        count += 1;
        if count <= limit {
            rows.push(DeadLetterRow::from(&dead_letter));
        }
    };
    session.ops.each_dead_letter(filter, see).await?;
    session.output.list(&DeadLetterRow::COLUMNS, &rows, NONE);
    note_more(count, limit);
    Ok(())
}

fn note_more(count: usize, limit: usize) {
    if count > limit {
        note(&format!("{} more are not shown: raise --limit, or add a condition.", count - limit));
    }
}

async fn show<DB: Dialect>(session: &Session<DB>, id: &DeadLetterId) -> Result<(), Exit> {
    let message = session.ops.dead_letter_message(id).await?;
    let filter = DeadLetterFilter { ids: vec![id.clone()], ..DeadLetterFilter::default() };
    let mut found = None;
    session.ops.each_dead_letter(&filter, |dead_letter| found = Some(dead_letter)).await?;
    let dead_letter = found.ok_or_else(|| Exit::not_found(format!("dead letter {id} does not exist")))?;
    let message = session.decoded(&message);
    let line = Line::new(session, &dead_letter, message.clone());
    session.output.one(&line, || {
        format!("{}\n\n{}", DeadLetterRow::from(&dead_letter).render(), message_text(&message))
    });
    Ok(())
}

async fn redrive<DB: Dialect>(
    session: &Session<DB>,
    filter: &FilterArguments,
    rate: Option<u32>,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    let chosen = filter.choose(session).await?;
    let redriven = chosen.dead_letters.iter().filter(|dead_letter| dead_letter.is_redriven).count();
    let ids = chosen
        .dead_letters
        .iter()
        .filter(|dead_letter| !dead_letter.is_redriven)
        .map(|dead_letter| dead_letter.id.clone());
    let ids = Vec::from_iter(ids);
    let mut effect = format!("This will retry {}", counted(ids.len() as u64, "dead letter"));
    if let Some(rate) = rate {
        effect += &format!(", {rate} a second");
    }
    if redriven > 0 {
        effect += &format!("; {redriven} more are being retried already");
    }
    let effect = effect + ".";
    let planned = Change { command: "dead-letters redrive", target: &chosen.target, effect };
    if ids.is_empty() {
        print_done(session, &planned, Done::new(0, "All of them are being retried already."));
        return chosen.require_complete();
    }
    let spacing = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate);
    let act = async || {
        let count = session.ops.redrive(&ids, spacing).await?;
        Ok(Done::new(count, format!("{} being retried.", counted(count, "dead letter"))))
    };
    change.run(session, &planned, act).await?;
    chosen.require_complete()
}

async fn discard<DB: Dialect>(
    session: &Session<DB>,
    filter: &FilterArguments,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    if change.reason.is_none() {
        return Err(Exit::usage("discarded messages never run: give the reason with --reason"));
    }
    let chosen = filter.choose(session).await?;
    let ids = Vec::from_iter(chosen.dead_letters.iter().map(|dead_letter| dead_letter.id.clone()));
    let effect = format!(
        "This will delete {}. Their messages never run. `twinbox dead-letters export` keeps a copy.",
        counted(ids.len() as u64, "dead letter")
    );
    let act = async || {
        let count = session.ops.discard(&ids).await?;
        Ok(Done::new(count, format!("{} discarded.", counted(count, "dead letter"))))
    };
    let planned = Change { command: "dead-letters discard", target: &chosen.target, effect };
    change.run(session, &planned, act).await?;
    chosen.require_complete()
}
