//! The content of a request, as it is compared with other requests that have its key.
use axum::{
    body::{Body, Bytes},
    extract::OriginalUri,
    http::{HeaderMap, Request, Uri, header, request::Parts},
};
use std::time::Duration;
use twinbox_core::FingerprintAlgorithm;
use twinbox_sql::operation::RequestDigest;

/// The longest boundary that RFC 2046 allows. A body with a longer one is compared byte by byte.
const BOUNDARY_BYTES_MAX: usize = 70;

/// A request whose body was read: method, path, sorted query, media type and body.
pub(crate) struct BufferedRequest {
    context: [Bytes; 4],
    body: Bytes,
    is_json: bool,
    /// The line between the parts of a multipart body. A client chooses a new boundary for each attempt, so
    /// the parts are compared without it.
    boundary: Option<Vec<u8>>,
}

impl BufferedRequest {
    pub(crate) fn new(parts: &Parts, body: Bytes) -> Self {
        let uri = original_uri(parts);
        let mut query = Vec::from_iter(uri.query().unwrap_or_default().split('&'));
        // The values of one name keep their order: a handler may take the first.
        query.sort_by_key(|pair| pair.split('=').next());
        let media_type = parts.headers.get(header::CONTENT_TYPE).map(|v| v.as_bytes()).unwrap_or_default();
        let mut media_type = media_type.split(|byte| *byte == b';').map(|part| part.trim_ascii());
        let essence = media_type.next().unwrap_or_default().to_ascii_lowercase();
        let boundary = media_type.find_map(|parameter| {
            let (name, value) = parameter.split_at_checked(b"boundary=".len())?;
            let value = unquoted(value.trim_ascii());
            let is_boundary = name.eq_ignore_ascii_case(b"boundary=") && essence.starts_with(b"multipart/");
            (is_boundary && (1..=BOUNDARY_BYTES_MAX).contains(&value.len())).then(|| [b"--", value].concat())
        });
        let is_json = essence == b"application/json" || essence.ends_with(b"+json");
        let context = [
            Bytes::copy_from_slice(parts.method.as_str().as_bytes()),
            Bytes::copy_from_slice(uri.path().as_bytes()),
            query.join("&").into(),
            essence.into(),
        ];
        Self { context, body, is_json, boundary }
    }

    /// The compared bytes: those beside the body, and the body or its parts. `excluded` are JSON pointers to
    /// members that do not count.
    pub(crate) fn digest(&self, excluded: &[String]) -> RequestDigest {
        let digest = RequestDigest::new(self.context.to_vec(), self.body.clone()).excluding(excluded);
        match self.boundary.clone() {
            Some(boundary) => digest.in_pieces(move |body| multipart_pieces(body, &boundary)),
            None => digest,
        }
    }

    /// The algorithm for this request: a body that is not JSON is compared byte by byte.
    pub(crate) fn algorithm(&self, algorithm: FingerprintAlgorithm) -> FingerprintAlgorithm {
        if self.is_json { algorithm } else { FingerprintAlgorithm::Raw }
    }

    /// Builds the request for the handler.
    pub(crate) fn to_request(&self, parts: Parts) -> Request<Body> {
        Request::from_parts(parts, Body::from(self.body.clone()))
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"").unwrap_or(value);
    inner.strip_suffix(b"\"").unwrap_or(inner)
}

/// Splits a multipart body as RFC 2046 does: a boundary begins a line and is alone on it. A marker after each
/// piece tells how it ended, so that different bodies have different pieces.
fn multipart_pieces<'a>(body: &'a [u8], dashed_boundary: &[u8]) -> Vec<&'a [u8]> {
    let (mut pieces, mut piece_start, mut line) = (Vec::new(), 0, Some(0));
    while let Some(start) = line {
        line = next_line(body, start);
        let Some(rest) = body[start..].strip_prefix(dashed_boundary) else { continue };
        let (is_last, rest) = rest.strip_prefix(b"--").map_or((false, rest), |rest| (true, rest));
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let rest = &rest[padding..];
        if !rest.is_empty() && !rest.starts_with(b"\r\n") {
            continue;
        }
        // The line break before a boundary belongs to the boundary.
        pieces.push(&body[piece_start..start.saturating_sub(2).max(piece_start)]);
        pieces.push(if is_last { b"end" } else { b"part" });
        piece_start = body.len() - rest.len();
        if is_last {
            break;
        }
    }
    pieces.push(&body[piece_start..]);
    pieces
}

/// Returns where the line after the one at `start` begins.
fn next_line(body: &[u8], start: usize) -> Option<usize> {
    body[start..].windows(2).position(|two| two == b"\r\n").map(|end| start + end + 2)
}

/// The URI as the caller wrote it: a nested router sees only a part of it.
pub(crate) fn original_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri)
}

/// The caller's own time-out from `X-Request-Timeout`: milliseconds, or with a unit `500ms`, `2s`.
pub(crate) fn caller_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("x-request-timeout")?.to_str().ok()?.trim();
    let (number, unit_ms) = match value.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => value.strip_suffix('s').map_or((value, 1), |number| (number, 1000)),
    };
    let number: u32 = number.trim().parse().ok()?;
    Some(Duration::from_millis(u64::from(number) * unit_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    fn digest(request: axum::http::request::Builder, body: &str) -> [u8; 32] {
        let (parts, body) = request.body(body.to_owned()).unwrap().into_parts();
        let request = BufferedRequest::new(&parts, body.into());
        let algorithm = request.algorithm(FingerprintAlgorithm::default());
        *block_on(request.digest(&[]).fingerprint(algorithm)).digest()
    }

    fn form(boundary: &str, value: &str) -> [u8; 32] {
        let request = Request::post("/a")
            .header("content-type", format!("multipart/form-data; boundary=\"{boundary}\""));
        digest(
            request,
            &format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n\
                --{boundary}--\r\n"
            ),
        )
    }

    #[test]
    fn the_names_of_a_query_have_no_order_and_the_values_of_a_name_have_one() {
        let of = |query: &str| digest(Request::get(format!("/a?{query}")), "");
        assert_eq!(of("a=1&b=2&a=3"), of("b=2&a=1&a=3"));
        assert_ne!(of("to=A&to=B"), of("to=B&to=A"));
    }

    /// R57, D12
    #[test]
    fn method_path_query_and_media_type_count() {
        let first = digest(Request::post("/payments/1?a=1&b=2"), "{}");
        assert_eq!(first, digest(Request::post("/payments/1?b=2&a=1"), "{}"));
        for other in ["/payments/2?a=1&b=2", "/payments/1?a=1&b=3", "/payments/1"] {
            assert_ne!(first, digest(Request::post(other), "{}"));
        }
        assert_ne!(first, digest(Request::put("/payments/1?a=1&b=2"), "{}"));
        let json = |value: &str| digest(Request::post("/a").header("content-type", value), "{}");
        assert_eq!(json("application/json"), json("Application/JSON; charset=utf-8"));
        assert_ne!(json("application/json"), json("text/json"));
        let spaced = |media_type: &str, body: &str| {
            digest(Request::post("/a").header("content-type", media_type), body)
        };
        for (media_type, is_json) in
            [("application/json", true), ("application/x+json", true), ("text/plain", false)]
        {
            assert_eq!(spaced(media_type, "1.0") == spaced(media_type, " 1 "), is_json, "{media_type}");
        }
    }

    /// A client chooses another boundary for each try.
    #[test]
    fn a_form_is_compared_by_its_parts() {
        assert_eq!(form("one", "1"), form("other", "1"));
        assert_ne!(form("one", "1"), form("one", "2"));
        assert_ne!(form("one", "a\r\n--one\r\nb"), form("two", "a\r\n--one\r\nb"));
        // Inside a line a boundary is content.
        assert_ne!(form("one", "x--oney"), form("two", "x--twoy"));
        assert_ne!(form("one", "x\r\n--oney"), form("two", "x\r\n--twoy"));
        let cut = |end: &str| {
            let media_type = "multipart/form-data; boundary=b";
            digest(Request::post("/a").header("content-type", media_type), &format!("--b\r\n\r\na\r\n{end}"))
        };
        let ends =
            [cut("--b--"), cut("--b"), cut("--b--\r\nend"), cut("--b\r\nend"), cut("--b\r\n--b--"), cut("")];
        for (n, end) in ends.iter().enumerate() {
            assert!(!ends[..n].contains(end), "{n}");
        }
        assert_eq!(cut("--b--"), cut("--b-- \t"));
        let [longest, too_long] = [70, 71].map(|bytes| ["a", "b"].map(|c| form(&c.repeat(bytes), "1")));
        assert!(longest[0] == longest[1] && too_long[0] != too_long[1]);
    }

    #[test]
    fn a_caller_timeout_has_a_unit_or_milliseconds() {
        let of = |value: &str| {
            caller_timeout(Request::post("/").header("x-request-timeout", value).body(()).unwrap().headers())
        };
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(
            [of("1500"), of(" 1500ms"), of("2s"), of("0")],
            [millis(1500), millis(1500), millis(2000), millis(0)]
        );
        assert_eq!([of(""), of("s"), of("-1"), of("1.5"), of("99999999999")], [None; 5]);
    }
}
