//! The sources of several streams as one.
use futures::{
    FutureExt as _,
    future::{join_all, select_all},
};
use std::{mem, time::Duration};
use tokio::time::sleep;
use twinbox_core::{BoxFuture, MaxAge, ReceivedMessage, Source, SourceError, SourceErrorKind};

/// The pause before the source of a stream is opened again.
const PAUSE: Duration = Duration::from_secs(1);

type Opened = Result<Box<dyn Source>, SourceError>;

/// Opens the source of the stream with a number.
type Open = Box<dyn Fn(usize) -> BoxFuture<'static, Opened> + Send + Sync>;

/// Receives from whatever has messages, in turn. A stream that is away is opened again, and stops no other.
pub(crate) struct MergedSource {
    open: Open,
    /// Of each stream, by its number.
    slots: Vec<Slot>,
    /// The stream that is asked first.
    first: usize,
}

enum Slot {
    Open(Box<dyn Source>),
    Opening(BoxFuture<'static, Opened>),
}

enum Event {
    Received(Result<Vec<ReceivedMessage>, SourceError>),
    Opened(Opened),
}

impl MergedSource {
    /// Opens the sources of so many streams. Of one stream it is that one itself.
    ///
    /// # Errors
    /// No stream can be read, or one is configured wrongly.
    pub(crate) async fn open(streams: usize, open: Open) -> Opened {
        if streams == 1 {
            return open(0).await;
        }
        let mut merged = Self { open, slots: Vec::with_capacity(streams), first: 0 };
        let opened = join_all((0..streams).map(&merged.open)).await;
        let mut failed = None;
        for (number, opened) in opened.into_iter().enumerate() {
            let slot = match opened {
                Ok(source) => Slot::Open(source),
                Err(error) if error.kind() == SourceErrorKind::Misconfigured => return Err(error),
                Err(error) => {
                    failed = Some(error);
                    merged.open_later(number)
                }
            };
            merged.slots.push(slot);
        }
        match failed.filter(|_| !merged.is_open()) {
            Some(error) => Err(error),
            None => Ok(Box::new(merged)),
        }
    }

    fn open_later(&self, number: usize) -> Slot {
        let opened = (self.open)(number);
        Slot::Opening(Box::pin(async {
            sleep(PAUSE).await;
            opened.await
        }))
    }

    fn sources(&self) -> impl Iterator<Item = &dyn Source> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Open(source) => Some(&**source),
            Slot::Opening(_) => None,
        })
    }

    fn is_open(&self) -> bool {
        self.sources().next().is_some()
    }

    /// Waits for the first stream with news. Cancel safe.
    async fn next(&mut self, max: usize) -> (usize, Event) {
        let streams = self.slots.len();
        // Each holds what it has received until it is asked again.
        let share = max.div_ceil(streams);
        let first = (self.first + 1) % streams;
        let mut events = Vec::from_iter(self.slots.iter_mut().map(|slot| match slot {
            Slot::Open(source) => source.receive(share).map(Event::Received).boxed(),
            Slot::Opening(opened) => opened.map(Event::Opened).boxed(),
        }));
        events.rotate_left(first);
        let (event, place, _) = select_all(events).await;
        self.first = first;
        ((place + first) % streams, event)
    }
}

impl Source for MergedSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>> {
        Box::pin(async move {
            loop {
                let (number, event) = self.next(max).await;
                let error = match event {
                    Event::Received(Ok(messages)) => return Ok(messages),
                    Event::Opened(Ok(source)) => {
                        self.slots[number] = Slot::Open(source);
                        continue;
                    }
                    Event::Received(Err(error)) | Event::Opened(Err(error)) => error,
                };
                self.slots[number] = self.open_later(number);
                if error.kind() == SourceErrorKind::Misconfigured || !self.is_open() {
                    return Err(error);
                }
                tracing::warn!(stream = number, %error, "a stream cannot be read, the others continue");
            }
        })
    }

    fn lag(&self) -> Option<u64> {
        self.sources().map(|source| source.lag()).sum()
    }

    fn max_age(&self) -> MaxAge {
        self.sources().map(|source| source.max_age()).fold(MaxAge::Settled, MaxAge::or_longer)
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        let closed = mem::take(&mut self.slots).into_iter().filter_map(|slot| match slot {
            Slot::Open(source) => Some(source.close()),
            Slot::Opening(_) => None,
        });
        join_all(closed).map(|results| results.into_iter().collect()).boxed()
    }
}
