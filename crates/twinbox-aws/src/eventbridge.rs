//! EventBridge: a classic event bus as a destination.
mod batching;
mod broker;
mod classify;
mod connect;
mod destination;
mod json;
mod options;
mod request;
mod status;
pub(crate) mod wire;

pub use broker::EventBridge;
pub use options::EventBridgeOptions;
pub use status::BusStatus;
