//! Vendors of side effects, and pausing them.
use crate::Ops;
use sqlx::Row as _;
use std::time::Duration;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    engine::{TextColumns, bounded, count, query},
};

/// The most vendors that are listed.
pub const VENDORS_MAX: u32 = 1000;
/// The newest effects among which vendors are looked for.
const NEWEST: i64 = 10_000;
/// The most waiting effects of a vendor that are counted.
const WAITING_MAX: i64 = 10_000;

/// A vendor of side effects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VendorInfo {
    /// The name of the vendor.
    pub vendor: String,
    /// Why an operator paused the vendor.
    pub pause_reason: Option<String>,
    /// For how long the vendor asks for no call.
    pub closed_for: Duration,
    /// How many effects are due or will be, counted up to 10,000. Those that wait for an earlier effect of
    /// their key are left out.
    pub waiting: u64,
    /// How long the longest due effect waits. Zero if none is due.
    pub overdue: Duration,
}

impl VendorInfo {
    /// Returns whether effects wait for the vendor although it may be called.
    pub fn is_late(&self, max: Duration) -> bool {
        self.overdue > max && self.pause_reason.is_none() && self.closed_for.is_zero()
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Returns the vendors that have open effects, that were paused or closed, or that are among the newest
    /// 10,000 effects, by name. At most [`VENDORS_MAX`].
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn vendors(&self) -> Result<Vec<VendorInfo>, Error> {
        let sql = &self.engine.sql().effect_acts;
        let mut conn = self.engine.connection().await?;
        let vendors = query::<DB>(&sql.vendors).bind(NEWEST).bind(i64::from(VENDORS_MAX));
        let mut found = Vec::new();
        for row in vendors.fetch_all(&mut *conn).await? {
            let vendor: String = row.text("vendor")?;
            let waiting = query::<DB>(&sql.waiting).bind(vendor.clone()).bind(vendor.clone());
            let waiting = waiting.bind(WAITING_MAX).fetch_one(&mut *conn).await?;
            let due_in: Option<i64> = waiting.try_get("due_in")?;
            found.push(VendorInfo {
                vendor,
                pause_reason: row.text_or_null("pause_reason")?,
                closed_for: Duration::from_micros(count(row.try_get("closed_for")?)),
                waiting: count(waiting.try_get("open_effects")?),
                overdue: Duration::from_micros(count(-due_in.unwrap_or(0))),
            });
        }
        conn.done().await?;
        Ok(found)
    }

    /// Pauses a vendor: every dispatcher sends nothing to it, as soon as it looks again, which is within
    /// 200 ms by default. Sends under way finish. It stays paused over restarts until
    /// [`resume_vendor`](Self::resume_vendor). A vendor that was never used is paused too.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn pause_vendor(&self, vendor: &str, reason: &str) -> Result<(), Error> {
        let (vendor, reason) = (bounded(vendor), bounded(reason));
        let pause = &self.engine.sql().effect_acts.pause;
        self.engine.execute(pause, |query| query.bind(vendor).bind(reason)).await?;
        Ok(())
    }

    /// Resumes a vendor that is paused, or that asked for no call for a time. Dispatchers send to it again as
    /// soon as they look. An effect that has to wait until a time of its own still waits.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: it is neither paused nor closed. Or the database refused or is away.
    pub async fn resume_vendor(&self, vendor: &str) -> Result<(), Error> {
        let (resume, name) = (&self.engine.sql().effect_acts.resume, vendor.to_owned());
        match self.engine.execute(resume, |query| query.bind(name)).await? {
            0 => Err(Error::new(
                ErrorKind::Conflict,
                format!("the vendor {vendor:?} is neither paused nor closed"),
            )),
            _ => Ok(()),
        }
    }
}
