//! What there is at the bus, for whoever has to judge it.
use super::{EventBridge, classify, connect::Link};
use aws_sdk_eventbridge::types::{Rule, RuleState};
use std::time::SystemTime;
use twinbox_core::{PublishError, PublishErrorKind};

/// What a bus does with events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusFacts {
    /// Rules of the account's own that are enabled and have a pattern; whether it matches, and whether they have a target,
    /// is not looked at. Without any, the bus accepts events and drops them. None: the rules may not be listed.
    pub rules: Option<usize>,
}

/// Rules that are looked at.
const RULES_MAX: usize = 1000;

impl EventBridge {
    /// Looks at the bus, which takes the right to describe it, and at its rules.
    ///
    /// # Errors
    /// The service is away or refuses, or there is no such bus.
    pub async fn bus_facts(&self) -> Result<BusFacts, PublishError> {
        let link = Link::open(&self.options).await?;
        let (mut rules, mut seen, mut next) = (0, 0, None);
        loop {
            let asked = link.client.list_rules().event_bus_name(&self.options.bus).set_next_token(next);
            let page = tokio::time::timeout(self.options.request_timeout, asked.send()).await;
            let page =
                page.map_err(|_| PublishError::new(PublishErrorKind::Unavailable, classify::TIMED_OUT.code))?;
            let page = match page {
                Ok(page) => page,
                Err(error) => match classify::of_look(&error, SystemTime::now()) {
                    verdict if verdict.kind == PublishErrorKind::Misconfigured => {
                        return Ok(BusFacts { rules: None });
                    }
                    verdict => return Err(verdict.error().with_source(error)),
                },
            };
            seen += page.rules().len();
            rules += page.rules().iter().filter(|rule| takes_events(rule)).count();
            next = page.next_token;
            if next.is_none() || seen >= RULES_MAX {
                return Ok(BusFacts { rules: Some(rules) });
            }
        }
    }
}

/// Not those that go by the clock, or that AWS keeps for its archives.
fn takes_events(rule: &Rule) -> bool {
    let is_disabled = rule.state() == Some(&RuleState::Disabled);
    let says = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    !is_disabled && says(rule.event_pattern()) && !says(rule.managed_by())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_takes_events_if_it_is_on_and_has_a_pattern_of_ones_own() {
        let rule = || Rule::builder().state(RuleState::Enabled);
        let pattern = "{\"source\":[\"shop\"]}";
        assert!(takes_events(&rule().event_pattern(pattern).build()));
        for other in [
            rule().event_pattern(pattern).state(RuleState::Disabled),
            rule().schedule_expression("rate(1 hour)"),
            rule().event_pattern(pattern).managed_by("events.amazonaws.com"),
        ] {
            assert!(!takes_events(&other.build()));
        }
    }
}
