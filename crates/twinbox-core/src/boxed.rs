//! Boxed futures and errors, used by every trait of this crate.
use std::{error::Error, future::Future, pin::Pin};

/// A boxed future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any error, boxed.
pub type BoxError = Box<dyn Error + Send + Sync>;
