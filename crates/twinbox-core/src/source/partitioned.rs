//! Brokers with a log that can be read from any checkpoint, partition by partition.
use super::{error::SourceError, max_age::MaxAge};
use crate::{boxed::BoxFuture, message::Message};

/// The progress of a consumer in one partition of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The identity of the log to which the sequence belongs. A log that is made again with the same name
    /// after a loss has another one.
    pub log: String,
    /// The sequence up to which all messages are settled. 0: none is.
    pub sequence: u64,
    /// The identity of the message with that sequence, in a form that the log defines. A log with another
    /// message there has lost its end, and its sequences from there on name other messages.
    pub message: String,
}

/// A broker's log that consumers read from checkpoints in their own database.
///
/// After a takeover the new process reads all unsettled messages again. So the messages of a key stay in
/// order across processes.
pub trait PartitionedLog: Send + Sync {
    /// Returns the number of partitions, which are counted from 0. A key is always in the same partition.
    fn partitions(&self) -> u32;

    /// Returns the partition of a message.
    fn partition_of(&self, message: &Message) -> u32;

    /// Returns the age up to which messages are delivered, as the broker reported when the log was opened.
    fn max_age(&self) -> MaxAge {
        MaxAge::unknown()
    }

    /// Opens a reader of one partition that starts after a checkpoint.
    ///
    /// It starts at the beginning if the checkpoint is of another log, or if the log does not have the
    /// message of the checkpoint any more. Then handled messages are delivered again, and the inbox removes
    /// them.
    ///
    /// # Errors
    /// The same as of [`Transport::subscribe`](crate::Transport::subscribe).
    fn read<'a>(
        &'a self,
        partition: u32,
        behind: &'a Checkpoint,
    ) -> BoxFuture<'a, Result<Box<dyn PartitionReader>, SourceError>>;
}

/// A reader of one partition, which returns each message once and in order.
pub trait PartitionReader: Send {
    /// Returns the identity of the log, for [`Checkpoint::log`].
    fn log(&self) -> &str;

    /// Returns the sequence after which this reader started.
    fn start_sequence(&self) -> u64;

    /// Returns the identity of the message with a sequence, for [`Checkpoint::message`].
    ///
    /// It is known for messages that were received and are not [`settled`](Self::settled), and for the
    /// sequence of [`received_up_to`](Self::received_up_to). For any other sequence the text is empty.
    fn message_at(&self, sequence: u64) -> String;

    /// Returns a sequence of the log up to which all messages of this partition were received.
    ///
    /// It may be the sequence of a message in another partition. The checkpoint of a partition without new
    /// messages moves there, so that it does not fall behind the retention of the log.
    fn received_up_to(&self) -> Option<u64> {
        None
    }

    /// Returns whether the log deleted messages after the checkpoint before they were read.
    fn has_gap(&self) -> bool {
        false
    }

    /// Waits for at least one message and returns at most `max`.
    ///
    /// # Cancel safety
    /// If the future is dropped, no message is lost.
    ///
    /// # Errors
    /// After an error the reader and its log are unusable: open the log again.
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<PartitionMessage>, SourceError>>;

    /// Returns the number of messages that wait at the broker, if the broker reported it.
    fn lag(&self) -> Option<u64> {
        None
    }

    /// Reports to the broker that all messages up to a sequence are settled.
    ///
    /// The broker uses it for its own view of the lag. Correctness does not depend on it.
    fn settled(&mut self, sequence: u64) -> BoxFuture<'_, ()>;
}

/// A message of a partition, with its sequence in the broker's log.
#[derive(Debug, Clone)]
pub struct PartitionMessage {
    /// The sequence, which is larger than that of each earlier message of the partition.
    pub sequence: u64,
    /// The message that was read. If [`defect`](Self::defect) is set, it holds only the readable parts.
    pub message: Message,
    /// The reason why the message cannot be read, now or later.
    pub defect: Option<String>,
}
