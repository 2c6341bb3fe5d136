//! `twinbox operations`: idempotent requests that never finished.
use crate::{
    change::{Change, ChangeArguments, Done},
    exit::Exit,
    output::{Column, counted, note},
    session::Session,
};
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;
use twinbox_sql::{
    Dialect,
    operation::{UNFINISHED_MAX, UnfinishedOperation},
};

/// The digits of a slot that are shown.
const DIGITS: usize = 16;
/// The digits of a slot that an operator must type. Logs show as many; fewer may fit several keys.
const DIGITS_MIN: usize = 8;

#[derive(Debug, Subcommand)]
pub(crate) enum OperationsCommand {
    /// List requests that called a vendor, or may have, and never finished. The oldest come first.
    List {
        /// The number of requests.
        #[arg(long, default_value_t = 100, value_name = "NUMBER")]
        limit: u32,
    },
    /// Forget the idempotency key of an unfinished request: a retry starts from the beginning. First find out
    /// what the request did outside, by its recovery point and the times of its tokens, and settle that by
    /// hand.
    Forget {
        /// The digits that `operations list` shows, or at least the first 8 of them.
        slot: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Serialize)]
struct OperationRow {
    slot: String,
    tenant: String,
    principal: String,
    scope: String,
    key: String,
    attempts: u32,
    recovery_point: Option<String>,
    /// The time when the vendor may have been called, by kind and generation.
    tokens: BTreeMap<String, String>,
    token_kinds: Option<String>,
    created_at: String,
    updated_at: String,
    expires_at: String,
    has_expired: bool,
}

const COLUMNS: [Column; 8] = [
    ("slot", "slot"),
    ("scope", "scope"),
    ("tenant", "tenant"),
    ("principal", "principal"),
    ("recovery point", "recovery_point"),
    ("tokens", "token_kinds"),
    ("last attempt", "updated_at"),
    ("expired", "has_expired"),
];

/// The digits of a slot that are shown.
pub(crate) fn short(slot: &str) -> &str {
    slot.get(..DIGITS).unwrap_or(slot)
}

impl From<UnfinishedOperation> for OperationRow {
    fn from(one: UnfinishedOperation) -> Self {
        let tokens = BTreeMap::from_iter(one.tokens.into_iter().map(|(kind, at)| (kind, at.to_string())));
        let kinds = Vec::from_iter(tokens.keys().map(String::as_str)).join(", ");
        Self {
            slot: short(&one.slot).to_owned(),
            tenant: one.tenant,
            principal: one.principal,
            scope: one.scope,
            key: one.key,
            attempts: one.attempts,
            recovery_point: one.recovery_point,
            token_kinds: Some(kinds).filter(|kinds| !kinds.is_empty()),
            tokens,
            created_at: one.created_at.to_string(),
            updated_at: one.updated_at.to_string(),
            expires_at: one.expires_at.to_string(),
            has_expired: one.has_expired,
        }
    }
}

pub(crate) async fn run<DB: Dialect>(command: OperationsCommand, session: &Session<DB>) -> Result<(), Exit> {
    match command {
        OperationsCommand::List { limit } => list(session, limit).await,
        OperationsCommand::Forget { slot, change } => forget(session, &slot, &change).await,
    }
}

pub(crate) async fn list<DB: Dialect>(session: &Session<DB>, limit: u32) -> Result<(), Exit> {
    let unfinished = session.store.idempotency_keys().unfinished(limit).await?;
    let rows = Vec::from_iter(unfinished.into_iter().map(OperationRow::from));
    session.output.list(&COLUMNS, &rows, "No request is unfinished.");
    let total = session.store.idempotency_keys().count_unfinished().await?;
    if session.output.is_table() && total > rows.len() as u64 {
        note(&format!("There are {} in total: use --limit.", counted(total, "unfinished request")));
    }
    Ok(())
}

async fn forget<DB: Dialect>(
    session: &Session<DB>,
    digits: &str,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    let digits = digits.to_ascii_lowercase();
    if digits.len() < DIGITS_MIN || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Exit::usage(format!(
            "a slot has at least {DIGITS_MIN} hexadecimal digits: `twinbox operations list` shows them"
        )));
    }
    let mut found = session.store.idempotency_keys().unfinished(UNFINISHED_MAX).await?;
    found.retain(|one| one.slot.starts_with(&digits));
    let one = match &*found {
        [one] => one,
        [] => {
            return Err(Exit::not_found(format!(
                "no unfinished request has a slot that begins with {digits}, or it is running now"
            )));
        }
        _ => {
            return Err(Exit::usage(format!("{} slots begin with {digits}: write more digits", found.len())));
        }
    };
    let progress = match &one.recovery_point {
        Some(point) => format!("It has reached {point:?}."),
        None => "It has saved nothing, and may have called its vendor.".to_owned(),
    };
    let effect = format!(
        "This will forget the key {} of {}. {progress} A retry starts from the beginning and calls the \
         vendor with \
         another token.",
        short(&one.slot),
        one.scope,
    );
    let act = async || match session.store.idempotency_keys().forget_unfinished(&bytes(&one.slot)).await? {
        true => Ok(Done::new(1, "The key is forgotten.")),
        false => Err(Exit::refused("the request is running again, or has finished: nothing is changed")),
    };
    change.run(session, &Change { command: "operations forget", target: &one.slot, effect }, act).await
}

/// The bytes of the 64 digits that the store wrote.
fn bytes(slot: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(slot.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16).unwrap_or(0);
        *byte = u8::try_from(digit(0) << 4 | digit(1)).unwrap_or(0);
    }
    bytes
}
