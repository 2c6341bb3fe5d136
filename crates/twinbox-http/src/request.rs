//! A request as it is compared with others of its key.
use crate::problem::Problem;
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::OriginalUri,
    http::{Request, Uri, header, request::Parts},
};
use http_body_util::LengthLimitError;
use std::{error::Error as _, time::Duration};
use twinbox_core::{Fingerprint, FingerprintAlgorithm, Fingerprinted};

/// As RFC 2046 has it. What has a longer one is no form, and is compared byte by byte.
const BOUNDARY_BYTES_MAX: usize = 70;

/// Method, path, query in order of its parts, media type, and body; of a multipart body its parts.
pub(crate) struct Asked {
    context: [Vec<u8>; 4],
    body: Bytes,
    is_json: bool,
    /// Between parts. It is another one each time the same form is sent.
    boundary: Option<Vec<u8>>,
}

impl Asked {
    pub(crate) fn new(parts: &Parts, body: Bytes) -> Self {
        let uri = uri(parts);
        let mut query = Vec::from_iter(uri.query().unwrap_or_default().split('&'));
        query.sort_unstable();
        let media_type = parts.headers.get(header::CONTENT_TYPE).map(|v| v.as_bytes()).unwrap_or_default();
        let mut media_type = media_type.split(|byte| *byte == b';').map(|part| part.trim_ascii());
        let essence = media_type.next().unwrap_or_default().to_ascii_lowercase();
        let boundary = media_type.find_map(|parameter| {
            let (name, value) = parameter.split_at_checked(b"boundary=".len())?;
            let value = value.trim_ascii().trim_with(b'"');
            let is_one = name.eq_ignore_ascii_case(b"boundary=") && essence.starts_with(b"multipart/");
            (is_one && (1..=BOUNDARY_BYTES_MAX).contains(&value.len())).then(|| [b"--", value].concat())
        });
        let is_json = essence == b"application/json" || essence.ends_with(b"+json");
        let context = [
            parts.method.as_str().as_bytes().to_vec(),
            uri.path().as_bytes().to_vec(),
            query.join("&").into_bytes(),
            essence,
        ];
        Self { context, body, is_json, boundary }
    }

    /// What the body is for, and of a form its parts.
    pub(crate) fn context(&self) -> Vec<&[u8]> {
        let mut context = Vec::from_iter(self.context.iter().map(Vec::as_slice));
        if let Some(boundary) = &self.boundary {
            context.extend(parts_of(&self.body, boundary));
        }
        context
    }

    /// What counts of it, with its [`context`](Self::context) and but for the members that JSON pointers exclude.
    pub(crate) fn fingerprinted<'a>(
        &'a self,
        context: &'a [&'a [u8]],
        excluded: &'a [String],
    ) -> Fingerprinted<'a> {
        let body = if self.boundary.is_some() { &[] } else { &self.body[..] };
        Fingerprinted { context, body, excluded }
    }

    /// What says that it is no JSON is compared byte by byte.
    pub(crate) fn algorithm(&self, algorithm: FingerprintAlgorithm) -> FingerprintAlgorithm {
        if self.is_json { algorithm } else { FingerprintAlgorithm::Raw }
    }

    pub(crate) fn digest(&self, algorithm: FingerprintAlgorithm, excluded: &[String]) -> [u8; 32] {
        *Fingerprint::of(self.algorithm(algorithm), self.fingerprinted(&self.context(), excluded)).digest()
    }

    /// For the handler.
    pub(crate) fn request(&self, parts: Parts) -> Request<Body> {
        Request::from_parts(parts, Body::from(self.body.clone()))
    }
}

trait TrimWith {
    fn trim_with(&self, byte: u8) -> &[u8];
}

impl TrimWith for [u8] {
    fn trim_with(&self, byte: u8) -> &[u8] {
        let inner = self.strip_prefix(&[byte]).unwrap_or(self);
        inner.strip_suffix(&[byte]).unwrap_or(inner)
    }
}

/// The parts of a form as RFC 2046 has them, each behind what begins it, so that no two forms have the same. A boundary
/// stands at the beginning of a line, and alone on it.
fn parts_of<'a>(body: &'a [u8], dashed: &[u8]) -> Vec<&'a [u8]> {
    let (mut pieces, mut begun, mut line) = (Vec::new(), 0, Some(0));
    while let Some(start) = line {
        line = line_after(body, start);
        let Some(rest) = body[start..].strip_prefix(dashed) else { continue };
        let (closes, rest) = rest.strip_prefix(b"--").map_or((false, rest), |rest| (true, rest));
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let rest = &rest[padding..];
        if !rest.is_empty() && !rest.starts_with(b"\r\n") {
            continue;
        }
        // The line break before a boundary is the boundary's.
        pieces.push(&body[begun..start.saturating_sub(2).max(begun)]);
        pieces.push(if closes { b"end" } else { b"part" });
        begun = body.len() - rest.len();
        if closes {
            break;
        }
    }
    pieces.push(&body[begun..]);
    pieces
}

/// Where the line begins that follows the one at `start`.
fn line_after(body: &[u8], start: usize) -> Option<usize> {
    body[start..].windows(2).position(|two| two == b"\r\n").map(|end| start + end + 2)
}

/// As the caller wrote it: a router that is nested in another sees a part of it.
pub(crate) fn uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri)
}

/// All of a body.
pub(crate) async fn whole(body: Body, max: usize) -> Result<Bytes, Problem> {
    to_bytes(body, max).await.map_err(|error| {
        let is_long = error.source().is_some_and(|source| source.is::<LengthLimitError>());
        if is_long { Problem::BodyTooLarge } else { Problem::BodyBroken }
    })
}

/// How long a caller waits for its answer: milliseconds, or with a unit `500ms`, `2s`.
pub(crate) fn budget(parts: &Parts) -> Option<Duration> {
    let value = parts.headers.get("x-request-timeout")?.to_str().ok()?.trim();
    let (number, unit) = match value.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => value.strip_suffix('s').map_or((value, 1), |number| (number, 1000)),
    };
    let number: u32 = number.trim().parse().ok()?;
    Some(Duration::from_millis(u64::from(number) * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: axum::http::request::Builder, body: &str) -> [u8; 32] {
        let (parts, body) = request.body(body.to_owned()).unwrap().into_parts();
        Asked::new(&parts, body.into()).digest(FingerprintAlgorithm::default(), &[])
    }

    fn form(boundary: &str, value: &str) -> [u8; 32] {
        let request = Request::post("/a")
            .header("content-type", format!("multipart/form-data; boundary=\"{boundary}\""));
        asked(
            request,
            &format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n--{boundary}--\r\n"
            ),
        )
    }

    /// R57, D12
    #[test]
    fn method_path_query_and_media_type_count() {
        let first = asked(Request::post("/payments/1?a=1&b=2"), "{}");
        assert_eq!(first, asked(Request::post("/payments/1?b=2&a=1"), "{}"));
        for other in ["/payments/2?a=1&b=2", "/payments/1?a=1&b=3", "/payments/1"] {
            assert_ne!(first, asked(Request::post(other), "{}"));
        }
        assert_ne!(first, asked(Request::put("/payments/1?a=1&b=2"), "{}"));
        let json = |value: &str| asked(Request::post("/a").header("content-type", value), "{}");
        assert_eq!(json("application/json"), json("Application/JSON; charset=utf-8"));
        assert_ne!(json("application/json"), json("text/json"));
        let spaced = |media_type: &str, body: &str| {
            asked(Request::post("/a").header("content-type", media_type), body)
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
        // Within a line it is what somebody wrote.
        assert_ne!(form("one", "x--oney"), form("two", "x--twoy"));
        assert_ne!(form("one", "x\r\n--oney"), form("two", "x\r\n--twoy"));
        let cut = |end: &str| {
            let media_type = "multipart/form-data; boundary=b";
            asked(Request::post("/a").header("content-type", media_type), &format!("--b\r\n\r\na\r\n{end}"))
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
    fn a_budget_has_a_unit_or_milliseconds() {
        let of = |value: &str| {
            budget(&Request::post("/").header("x-request-timeout", value).body(()).unwrap().into_parts().0)
        };
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(
            [of("1500"), of(" 1500ms"), of("2s"), of("0")],
            [millis(1500), millis(1500), millis(2000), millis(0)]
        );
        assert_eq!([of(""), of("s"), of("-1"), of("1.5"), of("99999999999")], [None; 5]);
    }
}
