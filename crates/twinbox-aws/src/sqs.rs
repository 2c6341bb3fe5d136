//! SQS: queues behind rules of EventBridge as a source.
mod broker;
mod classify;
mod connect;
mod options;
mod settle;
mod source;
mod wire;

pub use broker::Sqs;
pub use options::SqsOptions;
