//! The names of a side effect.
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// How a side effect is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EffectId {
    /// By the position of its row.
    Position(i64),
    /// By the id that is derived from its source and its kind. A row that was planned in SQL has no stored id
    /// before it is first sent.
    Id(Uuid),
}

impl From<i64> for EffectId {
    fn from(position: i64) -> Self {
        Self::Position(position)
    }
}

impl From<Uuid> for EffectId {
    fn from(id: Uuid) -> Self {
        Self::Id(id)
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => position.fmt(f),
            Self::Id(id) => id.fmt(f),
        }
    }
}

impl FromStr for EffectId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let position = text.parse().ok().filter(|position| *position > 0).map(Self::Position);
        let id = || Uuid::parse_str(text).ok().map(Self::Id);
        position
            .or_else(id)
            .ok_or_else(|| format!("{text:?} names no effect: write its position such as `12`, or its UUID"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_named_by_its_position_or_its_id() {
        for id in [EffectId::Position(12), EffectId::Id(Uuid::from_u128(7))] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "0", "-3", "x", "12 ", "1.5"] {
            assert!(bad.parse::<EffectId>().is_err(), "{bad}");
        }
    }
}
