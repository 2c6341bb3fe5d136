//! A side effect in the output.
use crate::output::Column;
use serde::Serialize;
use twinbox_core::Timestamp;
use twinbox_ops::effects::EffectInfo;

#[derive(Serialize)]
pub(crate) struct EffectRow {
    position: i64,
    id: Option<String>,
    source_id: String,
    kind: String,
    vendor: String,
    key: Option<String>,
    state: String,
    compensates: Option<i64>,
    generation: u32,
    attempts: u32,
    failures: u32,
    next_attempt_at: Option<String>,
    fired_at: Option<String>,
    ended_at: Option<String>,
    provider_ref: Option<String>,
    http_code: Option<u16>,
    error_code: Option<String>,
    last_error: Option<String>,
    created_at: String,
}

impl EffectRow {
    pub(crate) const COLUMNS: [Column; 9] = [
        ("effect", "position"),
        ("kind", "kind"),
        ("vendor", "vendor"),
        ("key", "key"),
        ("state", "state"),
        ("sends", "attempts"),
        ("planned", "created_at"),
        ("code", "error_code"),
        ("error", "last_error"),
    ];
}

impl From<&EffectInfo> for EffectRow {
    fn from(effect: &EffectInfo) -> Self {
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        Self {
            position: effect.position,
            id: effect.id.map(|id| id.to_string()),
            source_id: effect.source_id.to_string(),
            kind: effect.kind.clone(),
            vendor: effect.vendor.clone(),
            key: effect.key.clone(),
            state: effect.state.clone(),
            compensates: effect.compensates,
            generation: effect.generation,
            attempts: effect.attempts,
            failures: effect.failures,
            next_attempt_at: time(effect.next_attempt_at),
            fired_at: time(effect.fired_at),
            ended_at: time(effect.ended_at),
            provider_ref: effect.provider_ref.clone(),
            http_code: effect.http_code,
            error_code: effect.error_code.clone(),
            last_error: effect.last_error.clone(),
            created_at: effect.created_at.to_string(),
        }
    }
}
