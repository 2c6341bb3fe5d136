//! The response of an operation.

/// The response of an operation, stored and returned again byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationResponse {
    /// The HTTP status, or a code of your own.
    pub code: u16,
    /// Headers, or other data beside the body.
    pub headers: Vec<u8>,
    /// The body.
    pub body: ResponseBody,
    /// Whether the operation failed for good, so that nothing but this response was written.
    pub is_failure: bool,
}

impl OperationResponse {
    /// The word in the table.
    pub(super) const fn status(&self) -> &'static str {
        if self.is_failure { "failed" } else { "complete" }
    }
}

/// The body of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseBody {
    /// The body is stored with the response.
    Inline(Vec<u8>),
    /// The body was too large to store: the application makes it again from the object of this name.
    Reference(String),
    /// The body was too large to store, and is gone.
    Omitted,
}

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Inline(Vec::new())
    }
}

impl ResponseBody {
    /// The word in the table.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Inline(_) => "inline",
            Self::Reference(_) => "ref",
            Self::Omitted => "omitted",
        }
    }
}
