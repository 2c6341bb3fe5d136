//! The findings of `doctor` about side effects.
use crate::{
    exit::Exit,
    finding::{Finding, ok, warning, wrong},
    output::{bounded, brief, duration, plain},
};
use std::time::Duration;
use twinbox_ops::{Ops, VendorInfo, effects::EffectProblems};
use twinbox_sql::Dialect;

/// A running dispatcher sends a due effect sooner than this.
const OVERDUE_MAX: Duration = Duration::from_secs(10 * 60);

pub(super) async fn check<DB: Dialect>(ops: &Ops<DB>) -> Result<Vec<Finding>, Exit> {
    let mut findings = vec![problems(&ops.effect_problems(Duration::ZERO).await?)];
    findings.extend(ops.vendors().await?.iter().map(vendor));
    Ok(findings)
}

fn problems(problems: &EffectProblems) -> Finding {
    const WHAT: &str = "side effects";
    let failed = bounded(problems.failed, "effect");
    match problems {
        EffectProblems { unknown: 0, failed: 0, .. } => ok(WHAT, "none is unknown, and none has failed"),
        EffectProblems { unknown: 0, .. } => {
            warning(WHAT, format!("{failed} failed: see `twinbox effects list --state failed`"))
        }
        EffectProblems { unknown, .. } => {
            let unknown = bounded(*unknown, "effect");
            let found = format!(
                "{unknown} unknown, {failed} failed: look at the vendors, then use `twinbox effects resolve`"
            );
            wrong(WHAT, found)
        }
    }
}

fn vendor(vendor: &VendorInfo) -> Finding {
    let name = format!("vendor {}", vendor.vendor);
    match &vendor.pause_reason {
        Some(reason) => warning(&name, format!("paused: {}", brief(&plain(reason)))),
        None if !vendor.closed_for.is_zero() => {
            warning(&name, format!("asks for no call for {}", duration(vendor.closed_for)))
        }
        None if vendor.is_late(OVERDUE_MAX) => {
            let overdue = duration(vendor.overdue);
            wrong(&name, format!("an effect has been due for {overdue}: no dispatcher sends to it"))
        }
        None => ok(&name, bounded(vendor.waiting, "waiting effect")),
    }
}
