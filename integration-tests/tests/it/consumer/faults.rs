//! Rows of the fault matrix that consumers have to survive, one test or more for each.
mod sqs;
