//! The log engine: windows, cursors, leases, on real databases.
#[cfg(feature = "postgres")]
mod crash;
mod dead_letter;
mod decided;
#[cfg(feature = "programs")]
mod ended_replays;
mod gone;
#[cfg(feature = "programs")]
mod holes;
#[cfg(feature = "postgres")]
mod hostile;
#[cfg(feature = "programs")]
mod keeper;
#[cfg(feature = "programs")]
mod kept_ticks;
mod late;
mod lease;
#[cfg(feature = "postgres")]
mod plans;
mod producers;
mod progress;
#[cfg(feature = "programs")]
mod rebase;
mod repeated;
mod replayed;
#[cfg(feature = "postgres")]
mod restore;
mod retention;
mod shares;
mod start;
mod status;
#[cfg(feature = "postgres")]
mod thinned;
