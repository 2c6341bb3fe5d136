//! `twinbox console`: a web page.
#[cfg(feature = "nats")]
mod broker;

use crate::{
    exit::{Exit, invalid},
    output::{note, plain},
    session::Session,
};
use clap::Args;
use std::{net::IpAddr, path::PathBuf};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use twinbox_console::{Access, Console};
use twinbox_core::task_name::TaskName;
use twinbox_sql::Dialect;

#[derive(Debug, Args)]
pub(crate) struct ConsoleArguments {
    /// The address to listen on. Beyond this machine only with --tokens or --user-header.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4080", env = "TWINBOX_CONSOLE_LISTEN")]
    listen: String,
    /// Let operators change things. Without it everybody only looks.
    #[arg(long, env = "TWINBOX_CONSOLE_ALLOW_CHANGES")]
    allow_changes: bool,
    /// A file of tokens, with which people log in: lines `operator NAME TOKEN` or `viewer NAME TOKEN`.
    #[arg(long, value_name = "FILE", env = "TWINBOX_CONSOLE_TOKENS", conflicts_with = "user_header")]
    tokens: Option<PathBuf>,
    /// The header in which a proxy names who is logged in. It must remove the header from requests that come
    /// with it.
    #[arg(long, value_name = "HEADER", requires = "proxy", env = "TWINBOX_CONSOLE_USER_HEADER")]
    user_header: Option<String>,
    /// The address of that proxy. Requests from other addresses are refused. Repeatable.
    #[arg(long, value_name = "IP", requires = "user_header")]
    proxy: Vec<IpAddr>,
    /// Somebody whom the proxy names and who is an operator. All others only look. Repeatable.
    #[arg(long = "operator", value_name = "NAME", requires = "user_header")]
    operators: Vec<String>,
    /// A name under which browsers reach the console, beside those of this machine. Repeatable.
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Your name, for the audit, without --tokens and --user-header. Default: the user of the operating
    /// system.
    #[arg(long = "as", value_name = "NAME", env = "TWINBOX_AS")]
    operator: Option<String>,
    /// With its server, pages of consumers show how far they are behind on it.
    #[cfg(feature = "nats")]
    #[command(flatten)]
    stream: crate::stream::StreamArguments,
}

impl ConsoleArguments {
    fn access(&self) -> Result<Access, Exit> {
        let access = if let Some(file) = &self.tokens {
            let what = format!("the file {}", file.display());
            let text = std::fs::read_to_string(file).map_err(|error| invalid(&what, error))?;
            Access::tokens(&text).map_err(|error| invalid(&what, error))?
        } else if let Some(header) = &self.user_header {
            let access = Access::proxy(header, self.proxy.clone(), self.operators.clone());
            access.map_err(|error| invalid("--user-header", error))?
        } else {
            Access::loopback(crate::change::operator(self.operator.as_deref()))
        };
        let access = access.allow_changes(self.allow_changes);
        Ok(self.host.iter().fold(access, |access, host| access.host(host)))
    }
}

/// Serves the page until Ctrl-C or SIGTERM.
pub(crate) async fn run<DB: Dialect>(
    arguments: &ConsoleArguments,
    session: &Session<DB>,
) -> Result<(), Exit> {
    let access = arguments.access()?;
    let listener = TcpListener::bind(&arguments.listen).await;
    let listener = listener.map_err(|error| invalid(&format!("--listen {}", arguments.listen), error))?;
    let address = listener.local_addr().map_err(|error| invalid("--listen", error))?;
    let stop = CancellationToken::new();
    let stopped = tokio::spawn(TaskName::Signals.of(cancel_on_signal(stop.clone())));
    let changes = if arguments.allow_changes { "operators may change things" } else { "read only" };
    note(&format!(
        "Service {:?}, {}: the console is at http://{address}, {changes}. Ctrl-C ends it.",
        session.store.service(),
        plain(&session.database.to_string()),
    ));
    let console = Console::new(session.ops.clone(), session.database.id(), access);
    #[cfg(feature = "nats")]
    let console = match arguments.stream.server() {
        Some(server) => {
            server.connect().map_err(|error| invalid("--nats-url", error))?;
            console.broker(broker::Streams(arguments.stream.clone()))
        }
        None => console,
    };
    let served = console.serve(listener, stop).await;
    stopped.abort();
    served.map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Exit::usage(error.to_string()),
        _ => Exit::failure(format!("the console failed: {error}")),
    })
}

async fn cancel_on_signal(stop: CancellationToken) {
    let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
}
