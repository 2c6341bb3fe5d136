//! Drift: rows of the application without the effects that they should have, and what stays undone.
//!
//! A transaction plans an effect together with the row that wants it, so the two agree. They drift apart by
//! what goes around that: a row written by hand, an effect deleted, a code path that forgets to plan. A daily
//! run finds it.
//!
//! ```
//! use std::time::Duration;
//! use twinbox_effects::drift::{Drift, Expectation, Sweep};
//! # use twinbox_sql::{Dialect, Error, Store};
//!
//! # async fn run<DB: Dialect>(store: &Store<DB>) -> Result<(), Error> {
//! let captured = Expectation::exactly(1)
//!     .of("webhook.payment_captured")
//!     .per("payments")
//!     .where_sql("status = 'captured'")
//!     .after(Duration::from_secs(15 * 60), "updated_at");
//! let report = Drift::new(store).expect(captured)?.run_once(Sweep::Sample(10_000)).await?;
//! println!("{report}");
//! std::process::exit(report.exit_code());
//! # }
//! ```
mod expectation;
mod findings;
mod orphans;
mod report;
mod run;
mod sources;
mod stuck;
mod sweep;

pub use expectation::{Expectation, Per};
pub use report::{CheckReport, DriftFinding, DriftReport};
pub use run::Drift;
pub use sweep::{FINDINGS_MAX, Sweep};
