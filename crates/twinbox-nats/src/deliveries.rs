//! The deliveries of consumers, over a connection of their own.
//!
//! The client library ends its connection, or panics, at a header block that it cannot read, and the server
//! stores any block. One stored message would stop every consumer of its stream. So deliveries are read here,
//! where such a block is a defect of its message. All else goes over the client library's connection.
mod frame;
mod link;
mod login;
mod servers;
mod subscription;
mod task;
mod tls;

pub(crate) use subscription::{Arrival, Delivery, Status, Subscription};

use crate::{connect::Connection, error::Error};
use servers::Servers;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use subscription::Command;
use task::Task;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::task_name::TaskName;

/// The most commands that wait for the connection.
const COMMANDS_MAX: usize = 256;

/// A connection that receives deliveries. It connects again after a loss, like that of the client library;
/// after 12 tries in a row every subscription ends.
pub(crate) struct Deliveries {
    commands: mpsc::Sender<Command>,
    last_id: AtomicU64,
    _task: AbortOnDropHandle<()>,
}

impl Deliveries {
    /// Connects with the options of `connection`.
    pub(crate) async fn open(connection: &Connection) -> Result<Self, Error> {
        let servers = Servers::new(connection.options.clone());
        let link = servers.connect().await?;
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let task = Task::new(servers, received, connection.denied.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(TaskName::NatsDeliveries.of(task.run(link))));
        Ok(Self { commands, last_id: AtomicU64::new(0), _task: task })
    }

    /// Subscribes to the inbox `inbox`. None: the connection has ended.
    pub(crate) async fn subscribe(&self, inbox: &str) -> Option<Subscription> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let (entry, subscription) = subscription::pair(id, inbox.to_owned(), self.commands.clone());
        self.commands.send(Command::Subscribe(entry)).await.ok()?;
        Some(subscription)
    }
}
