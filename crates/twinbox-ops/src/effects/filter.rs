//! A filter for side effects.
use super::item::EffectInfo;
use twinbox_core::Timestamp;

/// A filter for side effects. An effect has to match every condition that is set. Default: all effects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct EffectFilter {
    /// Selects the effects in this state.
    pub state: Option<String>,
    /// Selects the effects for this vendor.
    pub vendor: Option<String>,
    /// Selects the effects of this kind. Without a qualifier: those of all its qualifiers.
    pub kind: Option<String>,
    /// Selects the effects that were planned at this time or later.
    pub since: Option<Timestamp>,
}

impl EffectFilter {
    /// Returns whether an effect matches the filter.
    pub fn matches(&self, effect: &EffectInfo) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|one| one == found);
        is(&self.state, &effect.state)
            && is(&self.vendor, &effect.vendor)
            && (is(&self.kind, &effect.kind) || is(&self.kind, effect.kind_base()))
            && self.since.is_none_or(|since| effect.created_at >= since)
    }
}
