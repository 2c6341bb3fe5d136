//! What relays and consumers have given up.
use crate::{
    ask::Change,
    exit::Exit,
    letters_file,
    message::payload,
    output::{Output, brief, counted, note, plain, say},
    time::{When, resolve},
};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::{path::PathBuf, time::Duration};
use twinbox_core::TypePattern;
use twinbox_sql::{
    Dialect, Store,
    letters::{Letter, LetterFilter, LetterGroup, LetterId},
};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// By what they have in common: whose, of which type, with which error.
    List {
        #[command(flatten)]
        which: Which,
        /// Each of them, oldest first.
        #[arg(long)]
        each: bool,
        /// How many of each, at most.
        #[arg(long, default_value_t = 200, value_name = "NUMBER")]
        limit: usize,
    },
    /// One of them, whole.
    Show {
        /// Which one: `12`, or `nats@345`.
        id: LetterId,
    },
    /// Try them again. They may arrive after later messages of their keys.
    Redrive {
        #[command(flatten)]
        which: Which,
        /// How many a second.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        rate: Option<u32>,
        #[command(flatten)]
        change: Change,
    },
    /// Delete them. Their messages will never run. Needs --reason.
    Discard {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        change: Change,
    },
    /// Write them as JSON lines, with their messages, to be read, kept, or mended and imported.
    Export {
        #[command(flatten)]
        which: Which,
        /// The file. Without it: stdout.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Publish what was exported, mended perhaps, as new messages that name the old ones as their cause.
    Import {
        /// The file.
        file: PathBuf,
        #[command(flatten)]
        change: Change,
    },
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Which letters; all that is said has to hold")]
pub(crate) struct Which {
    /// These: `12`, or `nats@345`.
    #[arg(value_name = "ID")]
    ids: Vec<LetterId>,
    /// Of this consumer.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Of this destination.
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Of this group, by its fingerprint or how that begins.
    #[arg(long, value_name = "FINGERPRINT")]
    group: Option<String>,
    /// Of a type. May be given several times.
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<TypePattern>,
    /// Of this key.
    #[arg(long)]
    key: Option<String>,
    /// Of the message with this event id or message id.
    #[arg(long, value_name = "ID")]
    message: Option<String>,
    /// Given up from this time on: `2026-11-20T03:00:00Z`, or `2h` for two hours ago.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Given up before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<When>,
    /// Those in a file that `export` has written.
    #[arg(long, value_name = "FILE")]
    listed_in: Option<PathBuf>,
    /// All of them.
    #[arg(long)]
    all: bool,
}

impl Which {
    async fn resolve<DB: Dialect>(&self, store: &Store<DB>) -> Result<LetterFilter, Exit> {
        if self.group.as_ref().is_some_and(String::is_empty) {
            return Err(Exit::usage("a fingerprint is not empty: `twinbox dead-letters list` shows them"));
        }
        Ok(LetterFilter {
            consumer: self.consumer.clone(),
            destination: self.destination.clone(),
            ids: match &self.listed_in {
                Some(file) => [&*self.ids, &letters_file::listed(file)?].concat(),
                None => self.ids.clone(),
            },
            fingerprint: self.group.clone(),
            types: self.types.clone(),
            key: self.key.clone(),
            message: self.message.clone(),
            since: resolve(self.since, store).await?,
            until: resolve(self.until, store).await?,
        })
    }

    /// Those that something is to be done to: nobody does it to all of them by forgetting a filter.
    async fn chosen<DB: Dialect>(&self, store: &Store<DB>) -> Result<(Vec<Letter>, String), Exit> {
        let filter = self.resolve(store).await?;
        if filter == LetterFilter::default() && !self.all {
            return Err(Exit::usage("say which, by id, by --group or by another filter, or say --all"));
        }
        let mut letters = Vec::new();
        store.each_letter(&filter, |letter| letters.push(letter)).await?;
        if letters.is_empty() {
            return Err(Exit::not_found("there is no such dead letter"));
        }
        Ok((letters, self.told()))
    }

    fn told(&self) -> String {
        let mut parts = Vec::new();
        let named = [
            ("consumer", &self.consumer),
            ("destination", &self.destination),
            ("group", &self.group),
            ("key", &self.key),
            ("message", &self.message),
        ];
        parts.extend(named.iter().filter_map(|(name, text)| Some(format!("{name} {}", text.as_ref()?))));
        parts.extend(self.types.iter().map(|pattern| format!("type {pattern}")));
        parts.extend(self.since.map(|time| format!("since {time:?}")));
        parts.extend(self.until.map(|time| format!("until {time:?}")));
        parts.extend(
            (!self.ids.is_empty())
                .then(|| self.ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
        );
        if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
    }
}

pub(crate) async fn run<DB: Dialect>(
    command: DeadLettersCommand,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    match command {
        DeadLettersCommand::List { which, each: false, limit } => {
            let groups = store.letter_groups(&which.resolve(store).await?).await?;
            let rows: Vec<_> = groups.iter().take(limit).map(GroupRow::from).collect();
            output.told(&rows, NONE, GroupRow::told);
            more(groups.len(), limit);
            Ok(())
        }
        DeadLettersCommand::List { which, each: true, limit } => {
            let (mut rows, mut count) = (Vec::new(), 0);
            let filter = which.resolve(store).await?;
            store
                .each_letter(&filter, |letter| {
                    count += 1;
                    if count <= limit {
                        rows.push(LetterRow::from(&letter));
                    }
                })
                .await?;
            output.list(&LETTERS, &rows, NONE);
            more(count, limit);
            Ok(())
        }
        DeadLettersCommand::Show { id } => show(store, &id, output).await,
        DeadLettersCommand::Redrive { which, rate, change } => redrive(store, &which, rate, &change).await,
        DeadLettersCommand::Discard { which, change } => discard(store, &which, &change).await,
        DeadLettersCommand::Export { which, file } => {
            let (letters, _) = which.chosen(store).await?;
            letters_file::export(store, &letters, file.as_deref()).await
        }
        DeadLettersCommand::Import { file, change } => letters_file::import(store, &file, &change).await,
    }
}

fn more(count: usize, limit: usize) {
    if count > limit {
        note(&format!("{} more: raise --limit, or filter.", count - limit));
    }
}

async fn redrive<DB: Dialect>(
    store: &Store<DB>,
    which: &Which,
    rate: Option<u32>,
    change: &Change,
) -> Result<(), Exit> {
    let (letters, target) = which.chosen(store).await?;
    let redriven = letters.iter().filter(|letter| letter.redriven).count();
    let ids: Vec<_> = letters.into_iter().filter(|letter| !letter.redriven).map(|letter| letter.id).collect();
    if ids.is_empty() {
        note("All of them are being tried again already.");
        return Ok(());
    }
    let mut about = format!("This will try {} again", counted(ids.len() as u64, "dead letter"));
    if let Some(rate) = rate {
        about += &format!(", {rate} a second");
    }
    if redriven > 0 {
        about += &format!("; {redriven} more are being tried already");
    }
    let spacing = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate);
    let act = async || {
        let done = store.redrive_letters(&ids, spacing).await?;
        Ok((done, done))
    };
    if let Some(done) = change.make(store, "dead-letters redrive", &target, &(about + "."), act).await? {
        say(&format!("{} back at work.", counted(done, "dead letter")));
    }
    Ok(())
}

async fn discard<DB: Dialect>(store: &Store<DB>, which: &Which, change: &Change) -> Result<(), Exit> {
    if change.reason.is_none() {
        return Err(Exit::usage("say why, with --reason: what is discarded never runs"));
    }
    let (letters, target) = which.chosen(store).await?;
    let ids: Vec<_> = letters.into_iter().map(|letter| letter.id).collect();
    let about = format!(
        "This will delete {}: their messages will never run. `export` keeps a copy.",
        counted(ids.len() as u64, "dead letter")
    );
    let act = async || {
        let done = store.discard_letters(&ids).await?;
        Ok((done, done))
    };
    if let Some(done) = change.make(store, "dead-letters discard", &target, &about, act).await? {
        say(&format!("{} discarded.", counted(done, "dead letter")));
    }
    Ok(())
}

#[derive(Serialize)]
struct GroupRow {
    fingerprint: String,
    of: String,
    by: &'static str,
    event_type: String,
    reason: String,
    error: String,
    letters: u64,
    redriven: u64,
    first_died_at: String,
    last_died_at: String,
    newest: String,
}

impl GroupRow {
    fn told(&self) -> String {
        let letters = counted(self.letters, "letter");
        let redriven = match self.redriven {
            0 => String::new(),
            some => format!(", {some} being tried again"),
        };
        let (of, error) = (plain(&self.of), brief(&plain(&self.error)));
        let (first, last) = (brief(&self.first_died_at), brief(&self.last_died_at));
        format!(
            "{}  {letters} of the {} {of}{redriven}\n  {}, {}: {error}\n  {first} to {last}, the newest is {}",
            self.fingerprint, self.by, self.event_type, self.reason, self.newest
        )
    }
}

impl From<&LetterGroup> for GroupRow {
    fn from(group: &LetterGroup) -> Self {
        let newest = &group.newest;
        Self {
            fingerprint: group.fingerprint.clone(),
            of: newest.of.clone(),
            by: by(&newest.id),
            event_type: newest.event_type.clone(),
            reason: newest.reason.clone(),
            error: newest.error.clone(),
            letters: group.letters,
            redriven: group.redriven,
            first_died_at: group.first_died_at.to_string(),
            last_died_at: newest.died_at.to_string(),
            newest: newest.id.to_string(),
        }
    }
}

fn by(id: &LetterId) -> &'static str {
    match id {
        LetterId::OfConsumer(_) => "consumer",
        LetterId::OfDestination(..) => "destination",
    }
}

const NONE: &str = "There are no dead letters.";

const LETTERS: [(&str, &str); 6] = [
    ("id", "id"),
    ("of", "of"),
    ("type", "event_type"),
    ("key", "key"),
    ("error", "error"),
    ("died", "died_at"),
];

#[derive(Serialize)]
pub(crate) struct LetterRow {
    id: String,
    of: String,
    by: &'static str,
    fingerprint: String,
    message_id: String,
    event_id: String,
    source: String,
    event_type: String,
    key: Option<String>,
    reason: String,
    error: String,
    attempts: u32,
    time: String,
    died_at: String,
    redriven: bool,
}

impl From<&Letter> for LetterRow {
    fn from(letter: &Letter) -> Self {
        Self {
            id: letter.id.to_string(),
            of: letter.of.clone(),
            by: by(&letter.id),
            fingerprint: letter.fingerprint(),
            message_id: letter.message_id.to_string(),
            event_id: letter.event_id.clone(),
            source: letter.source.clone(),
            event_type: letter.event_type.clone(),
            key: letter.key.clone(),
            reason: letter.reason.clone(),
            error: letter.error.clone(),
            attempts: letter.attempts,
            time: letter.time.to_string(),
            died_at: letter.died_at.to_string(),
            redriven: letter.redriven,
        }
    }
}

async fn show<DB: Dialect>(store: &Store<DB>, id: &LetterId, output: &Output) -> Result<(), Exit> {
    let message = store.letter_message(id).await?;
    let filter = LetterFilter { ids: vec![id.clone()], ..LetterFilter::default() };
    let mut found = None;
    store.each_letter(&filter, |letter| found = Some(letter)).await?;
    let letter = found.ok_or_else(|| Exit::not_found(format!("there is no dead letter {id}")))?;
    let whole = letters_file::Line::new(&letter, &message);
    output.one(&whole, || {
        let row = LetterRow::from(&letter);
        format!(
            "Dead letter {} of the {} {}, group {}\n{} after {}: {}\ngiven up at {}{}\n\n{}",
            row.id,
            row.by,
            plain(&row.of),
            row.fingerprint,
            row.reason,
            counted(u64::from(row.attempts), "attempt"),
            plain(&row.error),
            row.died_at,
            if row.redriven { ", being tried again" } else { "" },
            payload(&message)
        )
    });
    Ok(())
}
