//! What the tests in `tests/it` share with the programs that they kill.
#[cfg(feature = "programs")]
mod readme;
#[cfg(feature = "http")]
pub mod refunds;
#[cfg(feature = "effects")]
pub mod vendors;

use serde::{Deserialize, Serialize};
use twinbox::Event;

/// An order of the tests that kill processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = customer)]
pub struct OrderPlaced {
    /// Which order.
    pub order_id: i64,
    /// Whose, which is the key.
    pub customer: i64,
}

/// The consumer that writes an invoice for each order.
pub const INVOICING: &str = "billing.invoice";
