//! The state of the bus, for an operator's checks.
use super::{broker::EventBridge, classify, connect::Connection};
use aws_sdk_eventbridge::types::{Rule, RuleState};
use std::time::SystemTime;
use twinbox_core::{PublishError, PublishErrorKind};

/// The state of an EventBridge bus, as AWS reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusStatus {
    /// The number of the account's own rules that are enabled and have a pattern, or None if the credentials
    /// may not list rules. A bus without such a rule accepts events and drops them. Whether a pattern
    /// matches, and whether a rule has a target, is not checked.
    pub rules: Option<usize>,
}

/// The most rules that are counted.
const RULES_MAX: usize = 1000;

impl EventBridge {
    /// Checks that the bus exists, which needs the permission to describe it, and counts its rules.
    ///
    /// # Errors
    /// The service is unavailable or refuses, or the bus does not exist.
    pub async fn bus_status(&self) -> Result<BusStatus, PublishError> {
        let connection = Connection::open(&self.options).await?;
        let (mut rules, mut seen, mut next) = (0, 0, None);
        loop {
            let request = connection.client.list_rules();
            let request = request.event_bus_name(&self.options.bus).set_next_token(next);
            let page = tokio::time::timeout(self.options.request_timeout, request.send()).await;
            let page =
                page.map_err(|_| PublishError::new(PublishErrorKind::Unavailable, classify::TIMED_OUT.code))?;
            let page = match page {
                Ok(page) => page,
                Err(error) => match classify::of_bus_check(&error, SystemTime::now()) {
                    verdict if verdict.kind == PublishErrorKind::Misconfigured => {
                        return Ok(BusStatus { rules: None });
                    }
                    verdict => return Err(verdict.error().with_source(error)),
                },
            };
            seen += page.rules().len();
            rules += page.rules().iter().filter(|rule| takes_events(rule)).count();
            next = page.next_token;
            if next.is_none() || seen >= RULES_MAX {
                return Ok(BusStatus { rules: Some(rules) });
            }
        }
    }
}

/// Returns whether a rule takes published events: not one with a schedule, nor one that AWS manages for its
/// archives.
fn takes_events(rule: &Rule) -> bool {
    let is_disabled = rule.state() == Some(&RuleState::Disabled);
    let is_set = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    !is_disabled && is_set(rule.event_pattern()) && !is_set(rule.managed_by())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enabled_rule_of_the_account_with_a_pattern_takes_events() {
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
