//! Rows of the fault matrix that consumers have to survive, one test or more for each. Those that are a part
//! of something else stand there, under the same names.
mod broker;
mod database;
mod killed;
mod sqs;
mod storm;
