//! Publishing to the stream.
use crate::{
    broker::{Nats, SYSTEM},
    connect::{Connection, Purpose},
    facts,
    ordered::OrderedPublisher,
    publish::{self, Encoded, unavailable},
    signer::Signer,
    spread::SpreadPublisher,
    stream,
    trust::Trust,
};
use futures::future::try_join_all;
use std::{future::ready, sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::Instant};
use twinbox_core::{
    BoxFuture, Destination, PublishError, PublishErrorKind, Publisher,
    destination::{
        Acknowledgement, Acknowledgements, DestinationCheck, DestinationSecret, Outgoing, acknowledgements,
    },
};

impl Destination for Nats {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn id(&self) -> &str {
        &self.options.id
    }

    fn partitions(&self) -> Option<u32> {
        Some(self.options.partitions)
    }

    fn address(&self) -> Option<String> {
        Some(self.options.address().to_string())
    }

    /// Opens a connection for this publisher and checks the stream.
    ///
    /// JetStream must respond, and the stream must accept subjects below the prefix. A missing stream is
    /// created if [`create_stream`](crate::NatsOptions::create_stream) is set, and an error otherwise. The
    /// [facts](crate#facts-about-a-stream) that its metadata lacks are added.
    fn connect<'a>(
        &'a self,
        secret: &'a DestinationSecret,
    ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async {
            let signer = Arc::new(Signer::new(secret, &self.options.prefix));
            let streams = self.each_stream();
            let connected = streams.iter().map(|stream| connect(stream, signer.clone()));
            let mut publishers = try_join_all(connected).await?;
            Ok(match publishers.pop() {
                Some(only) if publishers.is_empty() => only,
                last => {
                    publishers.extend(last);
                    Box::new(SpreadPublisher::new(self.options.partitions, publishers)) as _
                }
            })
        })
    }

    /// Looks at the stream as [`connect`](Self::connect) does, and creates none. No other stream may have the
    /// subjects of one that is missing and that [`create_stream`](crate::NatsOptions::create_stream) is for.
    /// An option of the stream with which the permissions of publishers do not hold is an error here, and a
    /// line of the log in [`connect`](Self::connect).
    fn check(&self) -> BoxFuture<'_, Result<DestinationCheck, PublishError>> {
        Box::pin(async {
            let connection = Connection::open(&self.options, Purpose::Administer).await?;
            let (mut missing, mut warnings) = (Vec::new(), self.warnings().await?);
            for of_stream in connection.each_stream() {
                let about = format!("the stream `{}`", of_stream.options.stream);
                let Some(info) = stream::look(&of_stream).await? else {
                    missing.push(about);
                    continue;
                };
                let info = stream::with_quorum(&of_stream, info).await?;
                facts::check(&info, &self.options)?;
                let trust = Trust::of(&info.config);
                trust.check(&info.config.name)?;
                warnings.extend(trust.warnings.iter().map(|found| format!("{about}: {found}")));
            }
            let check = DestinationCheck::new(self.options.publish_timeout).warnings(warnings);
            Ok(if missing.is_empty() { check } else { check.creates(missing.join(" and ")) })
        })
    }
}

/// Connects to one stream.
async fn connect(nats: &Nats, signer: Arc<Signer>) -> Result<Box<dyn Publisher>, PublishError> {
    let (connection, info) = publish::open(nats, &signer).await?;
    Trust::of(&info.config).log(&info.config.name);
    if stream::has_batches(&connection) && info.config.allow_batch_publish {
        return Ok(Box::new(OrderedPublisher::new(nats.clone(), signer, connection, &info)));
    }
    Ok(Box::new(StreamPublisher { nats: nats.clone(), signer, connection: Mutex::new(connection) }))
}

/// Owns its connection: acknowledgements hold it only weakly. Dropping the publisher ends the client and
/// discards the client's buffer.
struct StreamPublisher {
    nats: Nats,
    signer: Arc<Signer>,
    connection: Mutex<Arc<Connection>>,
}

impl Publisher for StreamPublisher {
    fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
        let (nats, signer) = (&self.nats, &self.signer);
        let connection = self.connection.get_mut();
        Box::pin(async move {
            let deadline = Instant::now() + nats.options.publish_timeout;
            let mut each: Vec<Acknowledgement> = Vec::with_capacity(batch.len());
            let mut is_down = false;
            for outgoing in batch {
                let sent = match (is_down, Encoded::new(nats, signer, outgoing)) {
                    (_, Err(refused)) => Err(refused),
                    (true, Ok(_)) => Err(unavailable("nats.not_sent")),
                    (false, Ok(encoded)) => encoded.send(connection, deadline).await,
                };
                is_down |= sent.as_ref().is_err_and(|e| e.kind() == PublishErrorKind::Unavailable);
                each.push(sent.unwrap_or_else(|error| Box::pin(ready(Err(error)))));
            }
            acknowledgements(each)
        })
    }

    /// Applies twice: to handing a batch to the client, and to each acknowledgement from its first poll.
    fn timeout(&self) -> Duration {
        self.nats.options.publish_timeout
    }

    /// Checks the stream. Opens a new connection if the present one is lost or does not respond.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async {
            let mut connection = self.connection.lock().await;
            if let (Some(new), _) = publish::check(&self.nats, &self.signer, &connection).await? {
                *connection = new;
            }
            Ok(())
        })
    }
}
