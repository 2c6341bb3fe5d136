//! Reads the body of a request, whose sender may be a stranger: within a size, a time, and a memory that all
//! bodies share which a layer is reading.
use crate::problem::Problem;
use axum::body::{Body, Bytes, HttpBody as _};
use http_body_util::{BodyExt as _, LengthLimitError};
use std::{error::Error as _, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

pub(crate) const BYTES_MAX: usize = 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);
const READING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Reads the bodies of a layer. Clones share the memory.
#[derive(Debug, Clone)]
pub(crate) struct BodyReader {
    /// The most bytes of one body.
    pub(crate) bytes_max: usize,
    /// How long a body may take.
    pub(crate) timeout: Duration,
    /// A permit for each byte that may still be read.
    memory: Arc<Semaphore>,
}

impl Default for BodyReader {
    fn default() -> Self {
        let memory = Arc::new(Semaphore::new(READING_BYTES_MAX));
        Self { bytes_max: BYTES_MAX, timeout: TIMEOUT, memory }
    }
}

impl BodyReader {
    /// Sets the most bytes of all bodies that are being read.
    pub(crate) fn set_memory(&mut self, bytes: usize) {
        self.memory = Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)));
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// The body is too large or too slow, the caller disconnected, or too much is being read at the moment.
    pub(crate) async fn read(&self, body: Body) -> Result<Bytes, Problem> {
        timeout(self.timeout, self.read_whole(body)).await.unwrap_or(Err(Problem::BodyTooSlow))
    }

    async fn read_whole(&self, mut body: Body) -> Result<Bytes, Problem> {
        let fits = |bytes: usize| if bytes > self.bytes_max { Err(Problem::BodyTooLarge) } else { Ok(()) };
        fits(usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX))?;
        let (mut read, mut permits) = (Vec::new(), None::<SemaphorePermit<'_>>);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let is_too_large = error.source().is_some_and(|source| source.is::<LengthLimitError>());
                if is_too_large { Problem::BodyTooLarge } else { Problem::BodyIncomplete }
            })?;
            let Ok(data) = frame.into_data() else { continue };
            fits(read.len() + data.len())?;
            if read.is_empty() && body.is_end_stream() {
                return Ok(data);
            }
            let more = u32::try_from(data.len()).map_err(|_| Problem::BodyTooLarge)?;
            let more = self.memory.try_acquire_many(more).map_err(|_| Problem::TooManyBodies)?;
            match &mut permits {
                Some(permits) => permits.merge(more),
                None => permits = Some(more),
            }
            // Not the frame itself: a small one may keep a large buffer.
            read.extend_from_slice(&data);
        }
        Ok(read.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use std::convert::Infallible;

    const PIECE: &[u8] = &[b'x'; 1000];

    /// A body of pieces that never ends.
    fn endless(pieces: usize) -> Body {
        let pieces = stream::iter((0..pieces).map(|_| Ok::<_, Infallible>(Bytes::from_static(PIECE))));
        Body::from_stream(pieces.chain(stream::pending()))
    }

    fn reader(bytes_max: usize, memory: usize) -> BodyReader {
        let mut reader = BodyReader { bytes_max, ..BodyReader::default() };
        reader.set_memory(memory);
        reader
    }

    #[tokio::test]
    async fn a_body_is_read_whole() {
        let pieces = stream::iter(["a", "", "bc"].map(|text| Ok::<_, Infallible>(Bytes::from(text))));
        let reader = reader(3, 3);
        assert_eq!(reader.read(Body::from_stream(pieces)).await.unwrap(), "abc");
        assert_eq!(reader.read(Body::from("abc")).await.unwrap(), "abc");
        assert_eq!(reader.read(Body::empty()).await.unwrap(), "");
        assert_eq!(reader.memory.available_permits(), 3, "what was read is given back");
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_refused_as_soon_as_it_is() {
        let reader = reader(3500, 100_000);
        assert_eq!(reader.read(endless(4)).await, Err(Problem::BodyTooLarge));
        assert_eq!(reader.read(Body::from(vec![0; 3501])).await, Err(Problem::BodyTooLarge));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_given_up_in_its_time() {
        let reader = reader(10_000, 10_000);
        let began = tokio::time::Instant::now();
        assert_eq!(reader.read(endless(2)).await, Err(Problem::BodyTooSlow));
        assert_eq!(began.elapsed(), TIMEOUT);
        assert_eq!(reader.memory.available_permits(), 10_000);
    }

    /// Strangers that send parts of bodies and then nothing.
    #[tokio::test(start_paused = true)]
    async fn bodies_that_are_being_read_share_a_memory() {
        let reader = reader(10_000, 25_000);
        let slow = Vec::from_iter((0..5).map(|_| {
            let reader = reader.clone();
            tokio::spawn(async move { reader.read(endless(5)).await })
        }));
        tokio::task::yield_now().await;
        while reader.memory.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(reader.read(endless(1)).await, Err(Problem::TooManyBodies));
        // A body that comes in one piece takes no memory while it is read.
        assert_eq!(reader.read(Body::from("abc")).await.unwrap(), "abc");
        for ended in slow {
            assert_eq!(ended.await.unwrap(), Err(Problem::BodyTooSlow));
        }
        assert_eq!(reader.memory.available_permits(), 25_000);
    }
}
