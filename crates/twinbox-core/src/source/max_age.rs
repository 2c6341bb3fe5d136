//! The max_age of a source: how old a delivery may be.
use std::time::Duration;

/// The age up to which a source may deliver a message, for the first time or again.
///
/// The retention of the inbox must be longer, or a late duplicate runs again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaxAge {
    /// The source never delivers a settled message again, however old it is.
    Settled,
    /// The source never delivers a message whose publish is longer ago than `age`.
    Within {
        /// The time since the publish.
        age: Duration,
        /// The setting of the broker that gives the age, for the operator who has to change it.
        reason: String,
    },
    /// The source delivers messages at any age, or the age is unknown.
    Unlimited {
        /// The setting of the broker that gives no limit, or the reason why the age is unknown.
        reason: String,
    },
}

impl MaxAge {
    pub(super) fn unknown() -> Self {
        Self::Unlimited { reason: "its transport gives no limit for the age of a delivery".to_owned() }
    }
}

impl MaxAge {
    /// Returns the one of both that is longer.
    #[must_use]
    pub fn or_longer(self, other: Self) -> Self {
        let is_longer = match (&self, &other) {
            (Self::Within { age, .. }, Self::Within { age: other, .. }) => other > age,
            (Self::Unlimited { .. }, _) | (_, Self::Settled) => false,
            _ => true,
        };
        if is_longer { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_age_is_that_of_both() {
        let within = |secs| MaxAge::Within { age: Duration::from_secs(secs), reason: String::new() };
        let ages = [MaxAge::Settled, within(1), within(2), MaxAge::Unlimited { reason: String::new() }];
        for (n, shorter) in ages.iter().enumerate() {
            for longer in &ages[n..] {
                assert_eq!(shorter.clone().or_longer(longer.clone()), *longer);
                assert_eq!(longer.clone().or_longer(shorter.clone()), *longer);
            }
        }
    }
}
