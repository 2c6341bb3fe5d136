//! For tests with Twinbox.

#[cfg(feature = "servers")]
pub mod servers;
