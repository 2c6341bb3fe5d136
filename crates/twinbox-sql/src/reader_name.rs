//! The names of those who read the log.
use std::{fmt, str::FromStr};

/// The name of a reader of the log, as its cursor and its parked rows have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReaderName {
    /// A destination of a relay, by its id.
    Destination(String),
    /// A consumer that reads the log itself: `consumer:NAME`.
    Consumer(String),
    /// A replay, by its number: `replay:ID`.
    Replay(i64),
}

/// The SQL condition that the reader named by `?` is no replay.
pub(crate) const NOT_REPLAY: &str = "? NOT LIKE 'replay:%'";
/// The SQL expression for the name of the replay with the number `?`. The CAST is for Postgres: it would look
/// for an operator of two numbers first.
pub(crate) const REPLAY_CURSOR: &str = "'replay:' || CAST(? AS text)";
/// The SQL expression for the name of the consumer `?`.
pub(crate) const LOG_READER: &str = "'consumer:' || ?";

impl fmt::Display for ReaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination(id) => f.write_str(id),
            Self::Consumer(name) => write!(f, "consumer:{name}"),
            Self::Replay(id) => write!(f, "replay:{id}"),
        }
    }
}

impl FromStr for ReaderName {
    type Err = std::convert::Infallible;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some(consumer) = name.strip_prefix("consumer:") {
            return Ok(Self::Consumer(consumer.to_owned()));
        }
        let replay = name.strip_prefix("replay:").and_then(|id| id.parse().ok());
        Ok(replay.map_or_else(|| Self::Destination(name.to_owned()), Self::Replay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let destination = ReaderName::Destination("nats".into());
        for name in [destination, ReaderName::Consumer("a.b".into()), ReaderName::Replay(7)] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert_eq!("replay:x".parse(), Ok(ReaderName::Destination("replay:x".into())));
    }

    #[test]
    fn sql_spells_the_names_as_the_program_does() {
        let written = |sql: &str, name: &str| {
            sql.replace("CAST(? AS text)", "?").replace("' || ?", name).replace('\'', "")
        };
        assert_eq!(ReaderName::Replay(7).to_string(), written(REPLAY_CURSOR, "7"));
        assert_eq!(ReaderName::Consumer("c".into()).to_string(), written(LOG_READER, "c"));
        assert_eq!(NOT_REPLAY, format!("? NOT LIKE '{}'", ReaderName::Replay(1)).replace('1', "%"));
    }
}
