//! Whether an EventBridge bus exists and has rules.
use crate::{
    exit::explain,
    finding::{Finding, ok, warning, wrong},
    output::counted,
};
use clap::Args;
use twinbox_aws::EventBridge;

#[derive(Debug, Args)]
#[command(next_help_heading = "Amazon EventBridge")]
pub(crate) struct AwsArguments {
    /// The bus to check, by name or ARN. Region and credentials come from the environment.
    #[arg(long, value_name = "BUS")]
    event_bus: Option<String>,
}

impl AwsArguments {
    pub(super) async fn check(&self) -> Option<Finding> {
        let bus = self.event_bus.as_deref()?;
        let what = format!("bus {bus}");
        let facts = match EventBridge::new(bus) {
            Ok(bus) => bus.bus_status().await.map_err(|error| explain(&error)),
            Err(error) => Err(error.to_string()),
        };
        Some(match facts {
            Ok(facts) => match facts.rules {
                None => warning(&what, "it exists; no permission to list its rules"),
                Some(0) => wrong(&what, "it has no rule: it accepts events and drops them"),
                Some(rules) => ok(&what, format!("it exists, with {}", counted(rules as u64, "rule"))),
            },
            Err(error) => wrong(&what, error),
        })
    }
}
