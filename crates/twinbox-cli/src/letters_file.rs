//! Dead letters as JSON lines, and back as new messages.
use crate::{
    ask::Change,
    exit::{Exit, bad},
    output::{counted, note, say},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Write},
    path::Path,
};
use twinbox_core::{Draft, Message, draft, id::derive};
use twinbox_sql::{
    Dialect, Store,
    letters::{Letter, LetterId},
};

/// The longest line that is read.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Messages that one transaction publishes.
const PUBLISHED_AT_ONCE: usize = 200;

/// A letter with its message. The payload as JSON if it is that, else in base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    letter: String,
    of: String,
    reason: String,
    error: String,
    attempts: u32,
    died_at: String,
    message_id: String,
    event_id: String,
    source: String,
    #[serde(rename = "type")]
    event_type: String,
    version: u32,
    key: Option<String>,
    subject: Option<String>,
    time: String,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    traceparent: Option<String>,
    content_type: String,
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Line {
    pub(crate) fn new(letter: &Letter, message: &Message) -> Self {
        // Only what JSON says again as it was: a number of 30 digits would come back as another.
        let json = serde_json::from_slice::<Value>(&message.payload).ok();
        let json = json.filter(|json| serde_json::to_vec(json).is_ok_and(|again| again == message.payload));
        let base64 = json.is_none().then(|| STANDARD.encode(&message.payload));
        let m = message.clone();
        Self {
            letter: letter.id.to_string(),
            of: letter.of.clone(),
            reason: letter.reason.clone(),
            error: letter.error.clone(),
            attempts: letter.attempts,
            died_at: letter.died_at.to_string(),
            message_id: message.message_id().to_string(),
            event_id: m.id,
            source: m.source,
            event_type: m.event_type,
            version: m.version,
            key: m.key,
            subject: m.subject,
            time: m.time.to_string(),
            correlation_id: m.correlation_id,
            causation_id: m.causation_id,
            traceparent: m.traceparent,
            content_type: m.content_type,
            headers: m.headers,
            payload: json,
            payload_base64: base64,
        }
    }

    /// A new message that names the old one as its cause. The same line is the same message, however often it is imported.
    fn draft(self) -> Result<Draft, String> {
        let payload = match (self.payload, self.payload_base64) {
            (Some(json), None) => serde_json::to_vec(&json).map_err(|error| error.to_string())?,
            (None, Some(text)) => {
                STANDARD.decode(text).map_err(|error| format!("`payload_base64`: {error}"))?
            }
            _ => return Err("it has either `payload` or `payload_base64`".to_owned()),
        };
        if self.headers.iter().any(|(name, _)| name == twinbox_core::message::header::CODEC) {
            return Err("its payload is encoded by a codec, which this tool does not have".to_owned());
        }
        let id = derive("import/1", &[self.message_id.as_bytes(), &payload]).to_string();
        let mut made = Draft::raw(self.event_type, self.version, payload)
            .id(id)
            .causation_id(self.message_id)
            .content_type(self.content_type);
        made.fields.key = self.key;
        made.fields.subject = self.subject;
        made.fields.correlation_id = self.correlation_id;
        made.fields.headers =
            self.headers.into_iter().filter(|(name, _)| !draft::is_reserved(name)).collect();
        made.validate().map_err(|error| error.to_string())?;
        Ok(made)
    }
}

pub(crate) async fn export<DB: Dialect>(
    store: &Store<DB>,
    letters: &[Letter],
    file: Option<&Path>,
) -> Result<(), Exit> {
    let named = file.map_or("stdout".to_owned(), |file| file.display().to_string());
    let failed = |error: std::io::Error| Exit::failure(format!("{named}: {error}"));
    let mut out: Box<dyn Write> = match file {
        // Never over something that is there.
        Some(file) => Box::new(BufWriter::new(File::create_new(file).map_err(failed)?)),
        None => Box::new(std::io::stdout().lock()),
    };
    for letter in letters {
        let message = store.letter_message(&letter.id).await?;
        let line = serde_json::to_string(&Line::new(letter, &message));
        let line = line.map_err(|error| Exit::failure(error.to_string()))?;
        writeln!(out, "{line}").map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    note(&format!("{} written to {named}.", counted(letters.len() as u64, "dead letter")));
    Ok(())
}

pub(crate) async fn import<DB: Dialect>(store: &Store<DB>, file: &Path, change: &Change) -> Result<(), Exit> {
    let named = file.display().to_string();
    let drafts = read(file, &named)?;
    if store.readers().await?.is_empty() {
        return Err(Exit::refused(
            "nothing reads this log, so what is published here goes nowhere: import it where its consumers read from",
        ));
    }
    let about = format!(
        "This will publish {} of {named} as new messages of {:?}: every consumer of their types gets them, also one that \
         has handled the old ones. The dead letters stay.",
        counted(drafts.len() as u64, "line"),
        store.service()
    );
    let act = async || {
        let mut published = 0;
        for some in drafts.chunks(PUBLISHED_AT_ONCE) {
            let mut tx = store.begin().await?;
            store.outbox().publish_all(&mut tx, some.to_vec()).await?;
            tx.commit().await?;
            published += some.len() as u64;
        }
        Ok((published, published))
    };
    if let Some(published) = change.make(store, "dead-letters import", &named, &about, act).await? {
        say(&format!("{} published.", counted(published, "message")));
    }
    Ok(())
}

/// Which letters a file of them names.
pub(crate) fn listed(file: &Path) -> Result<Vec<LetterId>, Exit> {
    let named = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| bad(&named, error))?;
    let mut ids = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |error: String| Exit::usage(format!("{named}, line {}: {error}", n + 1));
        let line: Line = serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
        ids.push(line.letter.parse().map_err(at)?);
    }
    Ok(ids)
}

/// All lines, before anything is published.
fn read(file: &Path, named: &str) -> Result<Vec<Draft>, Exit> {
    let opened = File::open(file).map_err(|error| bad(named, error))?;
    let mut drafts = Vec::new();
    for (n, line) in BufReader::new(opened).lines().enumerate() {
        let at = |error: String| Exit::usage(format!("{named}, line {}: {error}", n + 1));
        let line = line.map_err(|error| at(error.to_string()))?;
        if line.len() > LINE_BYTES_MAX {
            return Err(at(format!("it has more than {LINE_BYTES_MAX} bytes")));
        }
        if line.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&line).map_err(|error| at(error.to_string()))?;
        drafts.push(line.draft().map_err(at)?);
    }
    Ok(drafts)
}
