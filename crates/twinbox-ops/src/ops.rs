//! The handle.
use std::fmt;
use twinbox_sql::{Dialect, Error, ErrorKind, Store, engine::Engine};

/// The questions and commands of operators about one store. Cheap to make and to clone.
pub struct Ops<DB: Dialect> {
    pub(crate) engine: Engine<DB>,
    pub(crate) store: Store<DB>,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns a handle for operators of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { engine: store.engine().clone(), store: store.clone() }
    }

    pub(crate) fn unknown_destination(destination: &str) -> Error {
        let what =
            format!("no destination {destination:?} has ever run here: it gets its row when it starts first");
        Error::new(ErrorKind::NotFound, what)
    }
}

impl<DB: Dialect> Clone for Ops<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), store: self.store.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Ops<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ops").field("store", &self.store).finish_non_exhaustive()
    }
}
