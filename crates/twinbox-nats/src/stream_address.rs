//! Where the messages of a destination or a consumer are.
use crate::options::NatsOptions;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The stream of a destination or a consumer. Relays and consumers store it in their database as text, for
/// tools that look at it. Server, login, domain and API prefix are not in it: they depend on who looks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StreamAddress {
    /// As [`NatsOptions::stream`].
    pub stream: String,
    /// As [`NatsOptions::streams`].
    pub streams: u32,
    /// As [`NatsOptions::prefix`].
    pub prefix: String,
    /// As [`NatsOptions::partitions`].
    pub partitions: u32,
}

/// The name of the messaging system around an address, so that no other system's is taken for one.
#[derive(Serialize, Deserialize)]
struct Stored<A> {
    nats: A,
}

/// The text is no [`StreamAddress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoStreamAddress;

impl fmt::Display for NoStreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text is no address of a stream of NATS")
    }
}

impl std::error::Error for NoStreamAddress {}

impl fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&Stored { nats: self }).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for StreamAddress {
    type Err = NoStreamAddress;

    fn from_str(text: &str) -> Result<Self, NoStreamAddress> {
        serde_json::from_str(text).map(|stored: Stored<Self>| stored.nats).map_err(|_| NoStreamAddress)
    }
}

impl NatsOptions {
    /// Returns the address of the stream.
    pub fn address(&self) -> StreamAddress {
        StreamAddress {
            stream: self.stream.clone(),
            streams: self.streams,
            prefix: self.prefix.clone(),
            partitions: self.partitions,
        }
    }

    /// Sets the stream, its prefix, and the numbers of streams and partitions.
    pub fn at(mut self, address: StreamAddress) -> Self {
        let StreamAddress { stream, streams, prefix, partitions } = address;
        (self.stream, self.streams, self.prefix, self.partitions) = (stream, streams, prefix, partitions);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_from_its_text() {
        let one = NatsOptions::new("nats://me:secret@localhost").stream("SHOP").prefix("shop.eu").address();
        let four = NatsOptions::new("nats://leaf").streams(4).partitions(64).address();
        for address in [one, four] {
            let text = address.to_string();
            assert!(!text.contains("secret") && !text.contains("localhost"), "{text}");
            assert_eq!(text.parse(), Ok(address.clone()));
            assert_eq!(NatsOptions::new("nats://other").at(address.clone()).address(), address);
        }
    }

    #[test]
    fn another_text_is_no_address() {
        for text in ["", "SHOP", "{}", r#"{"sqs":{"queue":"shop"}}"#, r#"{"nats":{"stream":"SHOP"}}"#] {
            assert_eq!(text.parse::<StreamAddress>(), Err(NoStreamAddress), "{text}");
        }
    }
}
