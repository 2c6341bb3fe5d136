//! The content of a request, and the fingerprints by which it is compared with others.
use bytes::Bytes;
use std::{
    fmt,
    sync::{Arc, LazyLock},
    thread::available_parallelism,
};
use tokio::{
    sync::{Mutex, Semaphore},
    task::spawn_blocking,
};
use twinbox_core::{Fingerprint, FingerprintAlgorithm, FingerprintInput, task_name::TaskName};

/// The largest body, in bytes, whose fingerprints are made on the thread that asks for them. It takes some
/// milliseconds at most.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Permits to make fingerprints of larger bodies. Half of the processors stay with the runtime.
static LARGE_BODY_PERMITS: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    Semaphore::new((processors / 2).max(1))
});

/// Cuts a body into pieces.
type Split = dyn Fn(&[u8]) -> Vec<&[u8]> + Send + Sync;

/// The content of a request, as it is compared with other requests that have its idempotency key.
///
/// A fingerprint is made when it is first needed, and once. For a body above 64 KiB a thread for blocking
/// work makes it. At most half of the processors do that at a time.
///
/// # Examples
/// ```
/// use twinbox_sql::operation::RequestDigest;
///
/// let context = vec!["POST".into(), "/refunds".into()];
/// let request = RequestDigest::new(context, r#"{"cents":100,"at":"now"}"#).excluding(&["/at".into()]);
/// ```
#[derive(Default)]
pub struct RequestDigest {
    content: Content,
    /// JSON pointers, sorted.
    excluded: Vec<String>,
    made: Mutex<Vec<Made>>,
}

#[derive(Clone, Default)]
struct Content {
    context: Vec<Bytes>,
    body: Bytes,
    split: Option<Arc<Split>>,
}

/// A fingerprint, and what was asked for.
struct Made {
    algorithm: FingerprintAlgorithm,
    excluded: Vec<String>,
    fingerprint: Fingerprint,
}

impl RequestDigest {
    /// Takes the body of a request and its `context`: the other parts, such as method, path, query and media
    /// type. Their order and number matter.
    pub fn new(context: Vec<Bytes>, body: impl Into<Bytes>) -> Self {
        Self { content: Content { context, body: body.into(), split: None }, ..Self::default() }
    }

    /// Ignores members of the body, such as a time. `pointers` are JSON pointers.
    #[must_use]
    pub fn excluding(self, pointers: &[String]) -> Self {
        let mut excluded = pointers.to_vec();
        excluded.sort_unstable();
        excluded.dedup();
        Self { excluded, ..self }
    }

    /// Compares the pieces that `split` cuts the body into, instead of the body. They follow the context.
    #[must_use]
    pub fn in_pieces(self, split: impl Fn(&[u8]) -> Vec<&[u8]> + Send + Sync + 'static) -> Self {
        let content = Content { split: Some(Arc::new(split)), ..self.content };
        Self { content, excluded: self.excluded, made: Mutex::default() }
    }

    /// Returns the fingerprint by `algorithm`, or by [`FingerprintAlgorithm::Raw`] if the body is not JSON.
    ///
    /// # Panics
    /// The body is larger than 64 KiB, and this is called outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// Only the work is lost. The next call does it again.
    pub async fn fingerprint(&self, algorithm: FingerprintAlgorithm) -> Fingerprint {
        self.fingerprint_without(&self.excluded, algorithm).await
    }

    /// As [`fingerprint`](Self::fingerprint), but it ignores the members in `excluded`. They are sorted.
    pub(super) async fn fingerprint_without(
        &self,
        excluded: &[String],
        algorithm: FingerprintAlgorithm,
    ) -> Fingerprint {
        let mut made = self.made.lock().await;
        if let Some(known) = made.iter().find(|one| one.is(excluded, algorithm)) {
            return known.fingerprint;
        }
        let (fingerprint, exact) = self.make(excluded, algorithm).await;
        let new = |algorithm, fingerprint| Made { algorithm, excluded: excluded.to_vec(), fingerprint };
        made.push(new(algorithm, fingerprint));
        made.extend(exact.map(|exact| new(FingerprintAlgorithm::ExactJson, exact)));
        fingerprint
    }

    /// JSON pointers, sorted.
    pub(super) fn excluded(&self) -> &[String] {
        &self.excluded
    }

    async fn make(
        &self,
        excluded: &[String],
        algorithm: FingerprintAlgorithm,
    ) -> (Fingerprint, Option<Fingerprint>) {
        if self.content.body.len() <= INLINE_BYTES_MAX {
            return self.content.fingerprints(excluded, algorithm);
        }
        // The thread keeps the permit, also when nobody waits for it any more.
        let permit = LARGE_BODY_PERMITS.acquire().await;
        let (content, pointers) = (self.content.clone(), excluded.to_vec());
        let making = spawn_blocking(TaskName::Fingerprint.of(move || {
            let _permit = permit;
            content.fingerprints(&pointers, algorithm)
        }));
        // A runtime that ends starts no thread.
        making.await.unwrap_or_else(|_| self.content.fingerprints(excluded, algorithm))
    }
}

impl Content {
    /// The fingerprint, and that of the same canonical form by [`FingerprintAlgorithm::ExactJson`] if the
    /// algorithm is another one.
    fn fingerprints(
        &self,
        excluded: &[String],
        algorithm: FingerprintAlgorithm,
    ) -> (Fingerprint, Option<Fingerprint>) {
        #[cfg(test)]
        tests::MADE.with(|made| made.set(made.get() + 1));
        let mut context = Vec::from_iter(self.context.iter().map(|part| &part[..]));
        let mut body = &self.body[..];
        if let Some(split) = &self.split {
            context.extend(split(body));
            body = &[];
        }
        let what = FingerprintInput { context: &context, body, excluded };
        if algorithm == FingerprintAlgorithm::StrictJson {
            let [strict, exact] = Fingerprint::of_each([algorithm, FingerprintAlgorithm::ExactJson], what);
            return (strict, Some(exact));
        }
        (Fingerprint::of(algorithm, what), None)
    }
}

impl Made {
    fn is(&self, excluded: &[String], algorithm: FingerprintAlgorithm) -> bool {
        match algorithm {
            // Bytes have no members. The fingerprint of a body that is not JSON is one of its bytes.
            FingerprintAlgorithm::Raw => self.fingerprint.algorithm() == algorithm,
            _ => self.algorithm == algorithm && self.excluded == excluded,
        }
    }
}

/// Without the content, which may be about a person.
impl fmt::Debug for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestDigest")
            .field("body_bytes", &self.content.body.len())
            .field("excluded", &self.excluded)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FingerprintAlgorithm::{ExactJson, Raw, StrictJson};

    thread_local! {
        /// How often this thread has made fingerprints.
        pub(super) static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn context() -> Vec<Bytes> {
        vec!["POST".into(), "/refunds".into()]
    }

    fn expected(algorithm: FingerprintAlgorithm, body: &[u8], excluded: &[String]) -> Fingerprint {
        let context: &[&[u8]] = &[b"POST", b"/refunds"];
        Fingerprint::of(algorithm, FingerprintInput { context, body, excluded })
    }

    #[tokio::test]
    async fn a_fingerprint_is_made_once() {
        let (body, at) = (r#"{"n":1.0,"at":2}"#, ["/at".to_owned()]);
        let request = RequestDigest::new(context(), body).excluding(&at);
        assert_eq!(MADE.get(), 0, "not before it is needed");
        for (made, algorithm) in [(1, ExactJson), (1, ExactJson), (2, Raw), (3, StrictJson), (3, ExactJson)] {
            let found = request.fingerprint(algorithm).await;
            assert_eq!(found, expected(algorithm, body.as_bytes(), &at), "{algorithm:?}");
            assert_eq!(MADE.get(), made, "{algorithm:?}");
        }
        for _ in 0..2 {
            let whole = request.fingerprint_without(&[], ExactJson).await;
            assert_eq!((whole, MADE.get()), (expected(ExactJson, body.as_bytes(), &[]), 4));
        }
    }

    #[tokio::test]
    async fn one_canonical_form_serves_both_ways_to_compare_json() {
        let request = RequestDigest::new(context(), "[1.0]");
        assert_eq!(request.fingerprint(StrictJson).await, expected(StrictJson, b"[1.0]", &[]));
        assert_eq!(request.fingerprint(ExactJson).await, expected(ExactJson, b"[1.0]", &[]));
        assert_eq!(MADE.get(), 1);
    }

    #[tokio::test]
    async fn a_body_that_is_not_json_is_read_once() {
        let request = RequestDigest::new(context(), "n=1");
        assert_eq!(request.fingerprint(ExactJson).await, expected(Raw, b"n=1", &[]));
        assert_eq!(request.fingerprint_without(&["/at".to_owned()], Raw).await, expected(Raw, b"n=1", &[]));
        assert_eq!(MADE.get(), 1);
    }

    #[tokio::test]
    async fn pieces_follow_the_context() {
        let request = RequestDigest::new(vec!["POST".into()], "/refunds 1")
            .in_pieces(|body| body.splitn(2, |byte| *byte == b' ').collect());
        let context: &[&[u8]] = &[b"POST", b"/refunds", b"1"];
        let input = FingerprintInput { context, ..FingerprintInput::default() };
        assert_eq!(request.fingerprint(ExactJson).await, Fingerprint::of(Raw, input));
    }

    /// This test has one thread.
    #[tokio::test]
    async fn another_thread_reads_a_large_body() {
        for (bytes, made_here) in [(INLINE_BYTES_MAX + 1, 0), (INLINE_BYTES_MAX, 1)] {
            let body = format!("[1.0{}]", " ".repeat(bytes - 5));
            let request = RequestDigest::new(context(), body.clone());
            assert_eq!(request.fingerprint(ExactJson).await, expected(ExactJson, body.as_bytes(), &[]));
            assert_eq!(MADE.get(), made_here, "{bytes}");
        }
        let all = Vec::from_iter((0..8).map(|n| format!("[{n}.0{}]", " ".repeat(INLINE_BYTES_MAX))));
        let all = all.into_iter().map(async |body| {
            let found = RequestDigest::new(context(), body.clone()).fingerprint(ExactJson).await;
            assert_eq!(found, expected(ExactJson, body.as_bytes(), &[]));
        });
        futures::future::join_all(all).await;
        assert_eq!(MADE.get(), 1);
    }

    /// The runtime has ended before the thread could start.
    #[test]
    fn a_runtime_that_ends_leaves_the_work_to_the_thread_that_asks() {
        let body = " ".repeat(INLINE_BYTES_MAX) + "[1.0]";
        let ended = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = ended.handle().clone();
        ended.shutdown_background();
        let _entered = handle.enter();
        let request = RequestDigest::new(context(), body.clone());
        let found = futures::executor::block_on(request.fingerprint(ExactJson));
        assert_eq!((found, MADE.get()), (expected(ExactJson, body.as_bytes(), &[]), 1));
    }

    #[test]
    fn debug_tells_nothing_of_the_content() {
        let told = format!("{:?}", RequestDigest::new(context(), "secret"));
        assert_eq!(told, "RequestDigest { body_bytes: 6, excluded: [], .. }");
    }
}
