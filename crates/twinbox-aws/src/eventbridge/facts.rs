//! What there is at the bus, for whoever has to judge it.
use super::{EventBridge, classify, connect::Link};
use aws_sdk_eventbridge::types::RuleState;
use std::time::SystemTime;
use twinbox_core::{PublishError, PublishErrorKind};

/// What a bus does with events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusFacts {
    /// Rules that are enabled. Without any, the bus accepts events and drops them.
    pub rules: usize,
}

/// Rules that are looked at.
const RULES_MAX: usize = 1000;

impl EventBridge {
    /// Looks at the bus and its rules, which takes the rights to describe the one and list the other.
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
            let page = page
                .map_err(|error| classify::of_look(&error, SystemTime::now()).error().with_source(error))?;
            seen += page.rules().len();
            rules += page.rules().iter().filter(|rule| rule.state() == Some(&RuleState::Enabled)).count();
            next = page.next_token;
            if next.is_none() || seen >= RULES_MAX {
                return Ok(BusFacts { rules });
            }
        }
    }
}
