//! The seam to brokers whose log can be read from any place, partition by partition.
use crate::{BoxFuture, Horizon, Message, SourceError};

/// How far a consumer is in one partition of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Which log the sequence is of. Another one of the same name, made after the first was lost, differs.
    pub log: String,
    /// Everything up to here is settled. 0: nothing is.
    pub sequence: u64,
    /// Which message has that sequence, in the words of the log. A log that finds another message there has lost its end
    /// since, and its sequences name other messages from then on.
    pub message: String,
}

/// A log that consumers read with their places in their own database, so that a takeover reads again what was not
/// settled, and the messages of a key stay in order across processes.
pub trait PartitionedLog: Send + Sync {
    /// How many partitions there are, counted from 0. A key is always in the same.
    fn partitions(&self) -> u32;

    /// Which partition a message is in.
    fn partition_of(&self, message: &Message) -> u32;

    /// How old what it delivers may be, as the broker has said when it was opened.
    fn horizon(&self) -> Horizon {
        Horizon::unknown()
    }

    /// Reads one partition behind a place. From the beginning, if the place is of another log, or the log no longer has
    /// the message that the place names: what was handled before is delivered again, and the inbox removes it.
    ///
    /// # Errors
    /// As [`Transport::subscribe`](crate::Transport::subscribe).
    fn read<'a>(
        &'a self,
        partition: u32,
        behind: &'a Place,
    ) -> BoxFuture<'a, Result<Box<dyn PartitionReader>, SourceError>>;
}

/// Reads the messages of one partition in order, each once.
pub trait PartitionReader: Send {
    /// Which log it reads, for [`Place::log`].
    fn log(&self) -> &str;

    /// Where it began: behind this.
    fn began_behind(&self) -> u64;

    /// Which message has a sequence, for [`Place::message`]. Answers for what was received and is not yet
    /// [`settled`](Self::settled), and for where it has [caught up](Self::caught_up); empty for any other.
    fn message_at(&self, sequence: u64) -> String;

    /// A sequence of the log, of whatever partition, up to which all of this partition was received. The place of a
    /// partition of which nothing comes moves there, so that it is not older than what the log keeps.
    fn caught_up(&self) -> Option<u64> {
        None
    }

    /// Whether the log had dropped messages behind the place before they were read.
    fn was_overtaken(&self) -> bool {
        false
    }

    /// Waits for at least one message and answers with at most `max`. Cancel safe: what is not returned is not lost.
    ///
    /// # Errors
    /// After an error the reader, and the log that it is of, are of no use; open the log again.
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Sequenced>, SourceError>>;

    /// Messages that wait at the broker, as far as it has said so.
    fn lag(&self) -> Option<u64> {
        None
    }

    /// Tells the broker up to where all is settled, for its own view of the lag. Nothing depends on it.
    fn settled(&mut self, sequence: u64) -> BoxFuture<'_, ()>;
}

/// A message with its place.
#[derive(Debug, Clone)]
pub struct Sequenced {
    /// Its place in the partition: larger than that of each message before it.
    pub sequence: u64,
    /// The message. Where [`defect`](Self::defect) is set it is as much of it as could be read.
    pub message: Message,
    /// Why the message cannot be read, if it cannot. It will never be readable.
    pub defect: Option<String>,
}
