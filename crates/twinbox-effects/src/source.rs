//! The source of a side effect.
use twinbox_core::MessageId;
use uuid::Uuid;

/// The identity of what wants a side effect: a message, an operation, or a row of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceId(Uuid);

impl SourceId {
    /// Returns the identity as a UUID.
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for SourceId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

impl From<MessageId> for SourceId {
    fn from(id: MessageId) -> Self {
        Self(id.as_uuid())
    }
}
