//! The console: a web page of the operator's tool.
//!
//! It shows what `twinbox status` shows, and dead letters, messages, keys, replays, effects and the audit. An
//! operator may act on single things, and on all dead letters that match a filter. Each act is shown before
//! it is made, asks for a reason, and leaves an entry in the audit.
//!
//! The program `twinbox console` serves it. A program of your own may, too:
//!
//! ```no_run
//! # use twinbox_console::{Access, Console};
//! # use twinbox_ops::{Dialect, Ops};
//! # async fn run<DB: Dialect>(ops: Ops<DB>) -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:4080").await?;
//! Console::new(ops, "shop.db", Access::loopback("ada")).serve(listener, Default::default()).await
//! # }
//! ```
//!
//! By default nobody may change anything, and only this machine may look. The page needs no JavaScript for
//! reading. It loads nothing from elsewhere.

mod access;
mod app;
mod assets;
mod broker;
mod change;
mod changes;
mod chart;
mod console;
mod failure;
// The macro of a filter makes public items.
#[allow(unreachable_pub)]
mod filters;
mod frame;
mod hosts;
mod links;
mod moment;
mod pages;
mod query;
mod samples;
mod sampling;
mod server;
mod view;

pub use access::{Access, AccessError, Principal, Role};
pub use broker::{BrokerLag, Lag, LagFuture};
pub use console::Console;
