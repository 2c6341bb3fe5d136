//! The numbers of dead letters.
use std::{fmt, str::FromStr};

/// The id of a dead letter, by which commands name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterId {
    /// A dead letter of a consumer. Written as a number.
    OfConsumer(i64),
    /// A dead letter of a destination, by the position of its message. Written `DESTINATION@POSITION`.
    OfDestination(String, i64),
}

/// The consumer or the destination that gave messages up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterOwner {
    /// A consumer, by its name.
    Consumer(String),
    /// A destination, by its id. For a consumer of the log that parks messages: `consumer:NAME`.
    Destination(String),
}

impl DeadLetterOwner {
    /// Returns the name of the consumer, or the id of the destination.
    pub fn name(&self) -> &str {
        match self {
            Self::Consumer(name) | Self::Destination(name) => name,
        }
    }
}

impl fmt::Display for DeadLetterOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(name) => write!(f, "consumer {name}"),
            Self::Destination(id) => write!(f, "destination {id}"),
        }
    }
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfConsumer(id) => write!(f, "{id}"),
            Self::OfDestination(destination, position) => write!(f, "{destination}@{position}"),
        }
    }
}

impl FromStr for DeadLetterId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.rsplit_once('@') {
            Some((destination, position)) => {
                position.parse().ok().map(|position| Self::OfDestination(destination.to_owned(), position))
            }
            None => text.parse().ok().map(Self::OfConsumer),
        };
        parsed.ok_or_else(|| format!("{text:?} is no dead letter: write `12`, or `nats@345`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_were_written() {
        for id in [DeadLetterId::OfConsumer(7), DeadLetterId::OfDestination("a@b".to_owned(), 9)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "x", "nats@", "@x", "7.5", "--"] {
            assert!(bad.parse::<DeadLetterId>().is_err(), "{bad}");
        }
    }
}
