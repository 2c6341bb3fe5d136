//! `twinbox vendors`.
use crate::{
    change::{Change, ChangeArguments, Done},
    exit::Exit,
    output::{Column, bounded, plain},
    session::Session,
};
use clap::{Args, Subcommand};
use serde::Serialize;
use twinbox_ops::VendorInfo;
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum VendorsCommand {
    /// List the vendors of side effects.
    List,
    /// Send nothing to a vendor until `resume`, from every dispatcher and over restarts. Sends under way
    /// finish.
    Pause(NameArguments),
    /// Send again to a vendor that is paused, or that asked for no call for too long.
    Resume(NameArguments),
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// The vendor.
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Serialize)]
pub(crate) struct VendorRow {
    vendor: String,
    /// `open`, `paused`, or `closed`: the vendor asked for no call.
    state: &'static str,
    waiting: u64,
    overdue_seconds: f64,
    closed_seconds: f64,
    /// The reason.
    paused: Option<String>,
}

impl VendorRow {
    pub(crate) const COLUMNS: [Column; 6] = [
        ("vendor", "vendor"),
        ("state", "state"),
        ("waiting", "waiting"),
        ("overdue", "overdue_seconds"),
        ("closed for", "closed_seconds"),
        ("paused", "paused"),
    ];
}

impl From<&VendorInfo> for VendorRow {
    fn from(vendor: &VendorInfo) -> Self {
        let state = match vendor {
            VendorInfo { pause_reason: Some(_), .. } => "paused",
            VendorInfo { closed_for, .. } if !closed_for.is_zero() => "closed",
            _ => "open",
        };
        Self {
            vendor: vendor.vendor.clone(),
            state,
            waiting: vendor.waiting,
            overdue_seconds: vendor.overdue.as_secs_f64(),
            closed_seconds: vendor.closed_for.as_secs_f64(),
            paused: vendor.pause_reason.clone(),
        }
    }
}

pub(crate) async fn run<DB: Dialect>(command: VendorsCommand, session: &Session<DB>) -> Result<(), Exit> {
    let ops = &session.ops;
    match command {
        VendorsCommand::List => {
            let rows: Vec<_> = ops.vendors().await?.iter().map(VendorRow::from).collect();
            session.output.list(&VendorRow::COLUMNS, &rows, "No side effect was ever planned here.");
            Ok(())
        }
        VendorsCommand::Pause(NameArguments { name, change }) => {
            let vendor = find(session, &name).await?;
            let effect = format!(
                "This will pause the vendor {} in every dispatcher. {} for it.",
                plain(&name),
                waits(vendor.waiting)
            );
            let reason = change.pause_reason();
            let act = async || {
                ops.pause_vendor(&name, &reason).await?;
                Ok(Done::new(1, format!("Vendor {} is paused.", plain(&name))))
            };
            change.run(session, &Change { command: "vendors pause", target: &name, effect }, act).await
        }
        VendorsCommand::Resume(NameArguments { name, change }) => {
            let vendor = find(session, &name).await?;
            let state = match &vendor.pause_reason {
                Some(reason) => format!("is paused: {}", plain(reason)),
                None if vendor.closed_for.is_zero() => {
                    return Err(Exit::refused(format!("vendor {name:?} is neither paused nor closed")));
                }
                None => format!("asked for no call for {} s", vendor.closed_for.as_secs()),
            };
            let effect = format!(
                "This will resume the vendor {}, which {state}. {} for it.",
                plain(&name),
                waits(vendor.waiting)
            );
            let act = async || {
                ops.resume_vendor(&name).await?;
                Ok(Done::new(1, format!("Vendor {} is resumed.", plain(&name))))
            };
            change.run(session, &Change { command: "vendors resume", target: &name, effect }, act).await
        }
    }
}

fn waits(waiting: u64) -> String {
    format!("{} {}", bounded(waiting, "effect"), if waiting == 1 { "waits" } else { "wait" })
}

/// # Errors
/// No such vendor: the error names the existing ones.
async fn find<DB: Dialect>(session: &Session<DB>, name: &str) -> Result<VendorInfo, Exit> {
    let mut vendors = session.ops.vendors().await?;
    match vendors.iter().position(|vendor| vendor.vendor == name) {
        Some(index) => Ok(vendors.swap_remove(index)),
        None if vendors.is_empty() => {
            Err(Exit::not_found(format!("vendor {name:?} is unknown: no side effect was ever planned here")))
        }
        None => {
            let names = Vec::from_iter(vendors.iter().map(|vendor| vendor.vendor.as_str())).join(", ");
            Err(Exit::not_found(format!("vendor {name:?} is unknown: known are {names}")))
        }
    }
}
