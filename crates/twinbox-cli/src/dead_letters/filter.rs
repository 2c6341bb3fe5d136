//! The options that select dead letters.
use super::file;
use crate::{
    exit::Exit,
    session::Session,
    time::{When, resolve},
};
use clap::Args;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};
use twinbox_core::TypePattern;
use twinbox_ops::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterId};
use twinbox_sql::Dialect;

/// The number of ids that an error or the audit names.
const NAMED_MAX: usize = 20;

#[derive(Debug, Args)]
#[command(next_help_heading = "Dead letters (all given conditions must hold)")]
pub(crate) struct FilterArguments {
    /// These dead letters: `12`, or `nats@345`.
    #[arg(value_name = "ID")]
    ids: Vec<DeadLetterId>,
    /// Of this consumer.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Of this destination.
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Of this group: its fingerprint, or the beginning of it if no other group begins so.
    #[arg(long, value_name = "FINGERPRINT")]
    group: Option<String>,
    /// Of this type. Repeatable.
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<TypePattern>,
    /// With this key.
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
    /// The dead letters in a file that `export` has written from this database.
    #[arg(long, value_name = "FILE")]
    listed_in: Option<PathBuf>,
    /// All dead letters.
    #[arg(long)]
    all: bool,
}

/// The dead letters that a command changes.
pub(crate) struct Chosen {
    pub(crate) dead_letters: Vec<DeadLetter>,
    /// The conditions, for the audit.
    pub(crate) target: String,
    /// Dead letters of the file that no longer exist.
    missing: Vec<DeadLetterId>,
}

impl Chosen {
    /// # Errors
    /// Dead letters of the file no longer exist: the command has changed only the others.
    pub(crate) fn require_complete(&self) -> Result<(), Exit> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(Exit::partial(format!("these listed dead letters no longer exist: {}", names(&self.missing))))
    }
}

impl FilterArguments {
    /// For a command that only reads.
    pub(crate) async fn filter<DB: Dialect>(&self, session: &Session<DB>) -> Result<DeadLetterFilter, Exit> {
        let listed = self.listed(session)?.into_iter().map(|(id, _)| id);
        let ids = self.ids.iter().cloned().chain(listed).collect();
        Ok(DeadLetterFilter { ids, ..self.conditions(session).await? })
    }

    /// The conditions other than ids.
    async fn conditions<DB: Dialect>(&self, session: &Session<DB>) -> Result<DeadLetterFilter, Exit> {
        Ok(DeadLetterFilter {
            consumer: self.consumer.clone(),
            destination: self.destination.clone(),
            ids: Vec::new(),
            fingerprint: match &self.group {
                Some(group) => Some(find_group(session, group).await?),
                None => None,
            },
            types: self.types.clone(),
            key: self.key.clone(),
            message: self.message.clone(),
            since: resolve(self.since, &session.store).await?,
            until: resolve(self.until, &session.store).await?,
        })
    }

    fn listed<DB: Dialect>(&self, session: &Session<DB>) -> Result<Vec<(DeadLetterId, String)>, Exit> {
        match &self.listed_in {
            Some(file) => file::listed(file, session.store.service(), &session.database),
            None => Ok(Vec::new()),
        }
    }

    /// For a command that changes the dead letters. Without any condition it needs `--all`.
    ///
    /// # Errors
    /// No condition; a typed id that does not exist; a listed id that belongs to another message here;
    /// nothing found.
    pub(crate) async fn choose<DB: Dialect>(&self, session: &Session<DB>) -> Result<Chosen, Exit> {
        let listed = BTreeMap::from_iter(self.listed(session)?);
        let conditions = self.conditions(session).await?;
        let named = BTreeSet::from_iter(self.ids.iter().chain(listed.keys()));
        if conditions == DeadLetterFilter::default() && named.is_empty() && !self.all {
            return Err(Exit::usage(
                "select dead letters, by id, with --group or with another condition, or use --all",
            ));
        }
        let (mut dead_letters, mut found, mut changed) = (Vec::new(), BTreeSet::new(), Vec::new());
        let see = |dead_letter: DeadLetter| {
            if !named.is_empty() {
                if !named.contains(&dead_letter.id) {
                    return;
                }
                found.insert(dead_letter.id.clone());
            }
            if listed
                .get(&dead_letter.id)
                .is_some_and(|message_id| *message_id != dead_letter.message_id.to_string())
            {
                changed.push(dead_letter.id);
            } else if conditions.matches(&dead_letter) {
                dead_letters.push(dead_letter);
            }
        };
        // A named dead letter that does not meet the conditions still exists.
        let searched = if named.is_empty() { conditions.clone() } else { DeadLetterFilter::default() };
        session.ops.each_dead_letter(&searched, see).await?;
        if !changed.is_empty() {
            return Err(Exit::refused(format!(
                "these dead letters are of other messages than in the file: {}",
                names(&changed)
            )));
        }
        let missing = |ids: Vec<&DeadLetterId>| -> Vec<DeadLetterId> {
            ids.into_iter().filter(|id| !found.contains(id)).cloned().collect()
        };
        let typed = missing(self.ids.iter().collect());
        if !typed.is_empty() {
            return Err(Exit::not_found(format!("these dead letters do not exist: {}", names(&typed))));
        }
        if dead_letters.is_empty() {
            return Err(Exit::not_found("no dead letter matches"));
        }
        Ok(Chosen { dead_letters, target: self.target(), missing: missing(listed.keys().collect()) })
    }

    fn target(&self) -> String {
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
        parts.extend(self.since.map(|time| format!("since {time}")));
        parts.extend(self.until.map(|time| format!("until {time}")));
        parts.extend(self.listed_in.as_ref().map(|file| format!("listed in {}", file.display())));
        if !self.ids.is_empty() {
            parts.push(names(&self.ids));
        }
        if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
    }
}

/// The fingerprint of the one group that begins so.
///
/// # Errors
/// No group begins so, or several do.
async fn find_group<DB: Dialect>(session: &Session<DB>, begin: &str) -> Result<String, Exit> {
    if begin.is_empty() {
        return Err(Exit::usage("a fingerprint is not empty: `twinbox dead-letters list` shows them"));
    }
    let filter = DeadLetterFilter { fingerprint: Some(begin.to_owned()), ..DeadLetterFilter::default() };
    let mut fingerprints = BTreeSet::new();
    let see = |dead_letter: DeadLetter| {
        fingerprints.insert(dead_letter.fingerprint.clone());
    };
    session.ops.each_dead_letter(&filter, see).await?;
    match fingerprints.len() {
        0 => Err(Exit::not_found(format!("no group of dead letters begins with {begin:?}"))),
        1 => Ok(fingerprints.pop_first().unwrap_or_default()),
        several => {
            let named = Vec::from_iter(fingerprints.into_iter().take(NAMED_MAX)).join(", ");
            Err(Exit::usage(format!("{several} groups begin with {begin:?}: {named}; write more digits")))
        }
    }
}

fn names(ids: &[DeadLetterId]) -> String {
    let named = Vec::from_iter(ids.iter().take(NAMED_MAX).map(ToString::to_string)).join(", ");
    match ids.len().checked_sub(NAMED_MAX) {
        Some(more) if more > 0 => format!("{named} and {more} more"),
        _ => named,
    }
}
