//! Idempotency keys of requests.
use crate::{
    ask::Change,
    exit::Exit,
    output::{Column, Output, counted, note, say},
};
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;
use twinbox_sql::{
    Dialect, Store,
    operation::{UNFINISHED_MAX, Unfinished},
};

/// Digits of a slot that tell keys apart on a screen.
const DIGITS: usize = 16;
/// Fewer digits are too easily those of another key. Logs have as many.
const DIGITS_MIN: usize = 8;

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Requests that called somebody outside, or may have, and never ended. Those that rest longest come first.
    List {
        /// Those, and no others: keys of requests that have ended are nobody's work.
        #[arg(long, required = true)]
        unfinished: bool,
        /// How many.
        #[arg(long, default_value_t = 100, value_name = "NUMBER")]
        limit: u32,
    },
    /// Forget the key of an unfinished request, so that it begins anew when it is asked for again. First find out what it
    /// did outside, by its recovery point and the times of its tokens, and settle that by hand.
    Forget {
        /// The digits that `keys list` shows, or at least the first 8 of them.
        slot: String,
        #[command(flatten)]
        change: Change,
    },
}

#[derive(Serialize)]
struct KeyRow {
    slot: String,
    tenant: String,
    principal: String,
    scope: String,
    key: String,
    attempts: u32,
    recovery_point: Option<String>,
    /// When the vendor may have been called, by kind and generation.
    tokens: BTreeMap<String, String>,
    tokens_told: Option<String>,
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
    ("tokens", "tokens_told"),
    ("last tried", "updated_at"),
    ("expired", "has_expired"),
];

/// As it is shown and typed.
pub(crate) fn short(slot: &str) -> &str {
    slot.get(..DIGITS).unwrap_or(slot)
}

impl From<Unfinished> for KeyRow {
    fn from(one: Unfinished) -> Self {
        let tokens = BTreeMap::from_iter(one.tokens.into_iter().map(|(kind, at)| (kind, at.to_string())));
        let told = Vec::from_iter(tokens.keys().map(String::as_str)).join(", ");
        Self {
            slot: short(&one.slot).to_owned(),
            tenant: one.tenant,
            principal: one.principal,
            scope: one.scope,
            key: one.key,
            attempts: one.attempts,
            recovery_point: one.recovery_point,
            tokens_told: Some(told).filter(|told| !told.is_empty()),
            tokens,
            created_at: one.created_at.to_string(),
            updated_at: one.updated_at.to_string(),
            expires_at: one.expires_at.to_string(),
            has_expired: one.has_expired,
        }
    }
}

pub(crate) async fn run<DB: Dialect>(
    command: KeysCommand,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    match command {
        KeysCommand::List { limit, .. } => {
            let rows: Vec<KeyRow> =
                store.unfinished_operations(limit).await?.into_iter().map(KeyRow::from).collect();
            output.list(&COLUMNS, &rows, "No request is unfinished.");
            let all = store.count_unfinished().await?;
            if output.is_table() && all > rows.len() as u64 {
                note(&format!("There are {}: say --limit.", counted(all, "unfinished request")));
            }
            Ok(())
        }
        KeysCommand::Forget { slot, change } => forget(store, &slot, &change).await,
    }
}

async fn forget<DB: Dialect>(store: &Store<DB>, digits: &str, change: &Change) -> Result<(), Exit> {
    let digits = digits.to_ascii_lowercase();
    if digits.len() < DIGITS_MIN || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Exit::usage(format!(
            "a slot is written with at least {DIGITS_MIN} hexadecimal digits, as `twinbox keys list --unfinished` shows it"
        )));
    }
    let mut found = store.unfinished_operations(UNFINISHED_MAX).await?;
    found.retain(|one| one.slot.starts_with(&digits));
    let one = match &*found {
        [one] => one,
        [] => {
            return Err(Exit::not_found(format!(
                "no unfinished key begins with {digits}, or its request runs now"
            )));
        }
        _ => return Err(Exit::usage(format!("{} keys begin with {digits}: write more digits", found.len()))),
    };
    let about = format!(
        "This will forget the key {} of {} at service {:?}. It has {}. Asked for again, the request begins anew and calls \
         its vendor with another token.",
        short(&one.slot),
        one.scope,
        store.service(),
        match &one.recovery_point {
            Some(point) => format!("come to {point:?}"),
            None => "saved nothing, and may have called its vendor".to_owned(),
        }
    );
    let act = async || {
        let forgotten = store.forget_unfinished(&bytes(&one.slot)).await?;
        Ok((u64::from(forgotten), forgotten))
    };
    match change.make(store, "keys forget", &one.slot, &about, act).await? {
        Some(true) => say("The key is forgotten."),
        Some(false) => {
            return Err(Exit::refused("somebody works on it again, or it has ended: nothing is changed"));
        }
        None => {}
    }
    Ok(())
}

/// Of the 64 digits that the store wrote.
fn bytes(slot: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(slot.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16).unwrap_or(0);
        *byte = u8::try_from(digit(0) << 4 | digit(1)).unwrap_or(0);
    }
    bytes
}
