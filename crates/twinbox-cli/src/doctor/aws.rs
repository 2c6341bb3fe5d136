//! Whether a bus is there, and does anything with what it is given.
use super::{Finding, finding};
use crate::{exit::explain, output::counted};
use clap::Args;
use twinbox_aws::EventBridge;

#[derive(Debug, Args)]
#[command(next_help_heading = "Amazon EventBridge")]
pub(crate) struct AwsArguments {
    /// The bus that is looked at, by name or ARN. Region and credentials are those of the environment.
    #[arg(long, value_name = "BUS")]
    event_bus: Option<String>,
}

impl AwsArguments {
    pub(super) async fn look(&self) -> Option<Finding> {
        let bus = self.event_bus.as_deref()?;
        let what = format!("bus {bus}");
        let facts = match EventBridge::new(bus) {
            Ok(bus) => bus.bus_facts().await.map_err(|error| explain(&error)),
            Err(error) => Err(error.to_string()),
        };
        Some(match facts {
            Ok(facts) => match facts.rules {
                None => finding(&what, "warning", "it is there, and its rules may not be looked at"),
                Some(0) => finding(&what, "wrong", "no rule takes events: it accepts them and drops them"),
                Some(rules) => {
                    finding(&what, "ok", format!("it is there, with {}", counted(rules as u64, "rule")))
                }
            },
            Err(error) => finding(&what, "wrong", error),
        })
    }
}
