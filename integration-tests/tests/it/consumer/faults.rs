//! Rows of the fault matrix that consumers have to survive, one test or more for each. Those that are a part
//! of something else stand there, under the same names.
#[cfg(feature = "postgres")]
mod broker;
#[cfg(feature = "postgres")]
mod database;
#[cfg(feature = "postgres")]
mod header_blocks;
mod killed;
#[cfg(feature = "programs")]
mod sqs;
#[cfg(feature = "postgres")]
mod storm;
