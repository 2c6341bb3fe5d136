//! Dead letters as lines of JSON, for `export`, `import` and `--listed-in`.
use crate::{
    connection::DatabaseName,
    exit::{Exit, invalid},
    session::Session,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    borrow::Cow,
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
};
use twinbox_core::{Draft, Message, Timestamp, draft, id::derive, message::header};
use twinbox_ops::dead_letters::{DeadLetter, DeadLetterId};
use twinbox_sql::Dialect;

/// The longest accepted line.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A dead letter with its message. The payload is JSON, or base64 if JSON would not keep its bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(super) service: String,
    /// The number of a dead letter means nothing in another database.
    pub(super) database: String,
    dead_letter: String,
    /// The consumer or the destination.
    pub(super) owner: String,
    reason: String,
    error: String,
    attempts: u32,
    given_up_at: String,
    pub(super) message_id: String,
    event_id: String,
    pub(super) source: String,
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
    /// The payload is encrypted in the database.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    decrypted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Line {
    pub(super) fn new<DB: Dialect>(
        session: &Session<DB>,
        dead_letter: &DeadLetter,
        message: Cow<'_, Message>,
    ) -> Self {
        let decrypted = matches!(message, Cow::Owned(_));
        // JSON only if it gives the same bytes again. A number of 30 digits would change.
        let json = serde_json::from_slice::<Value>(&message.payload).ok();
        let json = json.filter(|json| serde_json::to_vec(json).is_ok_and(|again| again == message.payload));
        let base64 = json.is_none().then(|| STANDARD.encode(&message.payload));
        let m = message.into_owned();
        Self {
            service: session.store.service().to_owned(),
            database: session.database.id(),
            dead_letter: dead_letter.id.to_string(),
            owner: dead_letter.owner.clone(),
            reason: dead_letter.reason.clone(),
            error: dead_letter.error.clone(),
            attempts: dead_letter.attempts,
            given_up_at: dead_letter.given_up_at.to_string(),
            message_id: dead_letter.message_id.to_string(),
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
            decrypted,
            payload: json,
            payload_base64: base64,
        }
    }

    pub(super) fn id(&self) -> Result<DeadLetterId, String> {
        self.dead_letter.parse()
    }

    /// A new message with the old one as its cause. The same line gives the same message id, so a second
    /// import adds nothing.
    ///
    /// # Errors
    /// The payload was redacted, is cut, is encrypted, or was encrypted and would be stored readable; or the
    /// message is invalid.
    pub(super) fn draft<DB: Dialect>(self, session: &Session<DB>) -> Result<Draft, String> {
        let has_header = |wanted: &str| self.headers.iter().any(|(name, _)| name == wanted);
        if has_header(header::REDACTED) {
            return Err("its payload was redacted: remove the line".to_owned());
        }
        if has_header(header::CUT) {
            let (cut, what) = (header::CUT, "its payload is only the beginning of one");
            return Err(format!("{what}: put the whole one in its place, and remove the header `{cut}`"));
        }
        if has_header(header::CODEC) {
            return Err("its payload is encoded: export it decrypted, with --payload-keys".to_owned());
        }
        if self.decrypted && session.store.codecs().next().is_none() {
            return Err("its payload was encrypted: give --payload-keys, to store it so again".to_owned());
        }
        let payload = match (self.payload, self.payload_base64) {
            (Some(json), None) => serde_json::to_vec(&json).map_err(|error| format!("`payload`: {error}"))?,
            (None, Some(text)) => {
                STANDARD.decode(text).map_err(|error| format!("`payload_base64`: {error}"))?
            }
            _ => return Err("it must have either `payload` or `payload_base64`".to_owned()),
        };
        let time = Timestamp::parse(&self.time).ok_or("`time` must be like `2026-11-20T03:00:00Z`")?;
        let id = derive("import/1", &[self.message_id.as_bytes(), &payload]).to_string();
        let mut draft = Draft::raw(self.event_type, self.version, payload)
            .id(id)
            .time(time)
            .causation_id(self.message_id)
            .content_type(self.content_type);
        if let Some(traceparent) = self.traceparent {
            draft = draft.traceparent(traceparent);
        }
        if let Some((_, tracestate)) = self.headers.iter().find(|(name, _)| name == header::TRACESTATE) {
            draft = draft.tracestate(tracestate);
        }
        // The dead letter may be an event of Twinbox itself.
        draft.fields.is_of_twinbox = true;
        draft.fields.key = self.key;
        draft.fields.subject = self.subject;
        draft.fields.correlation_id = self.correlation_id;
        draft.fields.headers =
            self.headers.into_iter().filter(|(name, _)| !draft::is_reserved(name)).collect();
        draft.validate().map_err(|error| error.to_string())?;
        Ok(draft)
    }
}

/// Reads all lines, each with its number.
///
/// # Errors
/// The file cannot be read, or a line is no dead letter.
pub(super) fn read(file: &Path) -> Result<Vec<(usize, Line)>, Exit> {
    let opened = File::open(file).map_err(|error| invalid(&file.display().to_string(), error))?;
    let mut lines = Vec::new();
    for (n, line) in (1..).zip(BufReader::new(opened).lines()) {
        let line = line.map_err(|error| at(file, n, &error.to_string()))?;
        if line.len() > LINE_BYTES_MAX {
            return Err(at(file, n, &format!("it has more than {LINE_BYTES_MAX} bytes")));
        }
        if !line.trim().is_empty() {
            let line = serde_json::from_str(&line).map_err(|error| at(file, n, &error.to_string()))?;
            lines.push((n, line));
        }
    }
    Ok(lines)
}

/// The dead letters of a file, with the message id of each.
///
/// # Errors
/// The file lists none, or dead letters of another service or database.
pub(super) fn listed(
    file: &Path,
    service: &str,
    database: &DatabaseName,
) -> Result<Vec<(DeadLetterId, String)>, Exit> {
    let mut ids = Vec::new();
    for (n, line) in read(file)? {
        require_same_database(file, n, &line, service, database)?;
        ids.push((line.id().map_err(|error| at(file, n, &error))?, line.message_id));
    }
    if ids.is_empty() {
        return Err(Exit::usage(format!("{} lists no dead letter", file.display())));
    }
    Ok(ids)
}

/// # Errors
/// The line was exported from another service or database.
pub(super) fn require_same_database(
    file: &Path,
    n: usize,
    line: &Line,
    service: &str,
    database: &DatabaseName,
) -> Result<(), Exit> {
    if line.service == service && line.database == database.id() {
        return Ok(());
    }
    Err(Exit::refused(format!(
        "{}, line {n}: it was exported from service {:?}, database {}; this is service {service:?}, database \
         {}",
        file.display(),
        line.service,
        line.database,
        database.id()
    )))
}

/// An error in a line.
pub(super) fn at(file: &Path, n: usize, error: &str) -> Exit {
    invalid(&format!("{}, line {n}", file.display()), error)
}
