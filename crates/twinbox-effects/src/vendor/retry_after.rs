//! The header `Retry-After`.
use http::{
    HeaderMap,
    header::{DATE, RETRY_AFTER},
};
use std::time::{Duration, SystemTime};

/// Returns how long to wait before the next call, by the header `Retry-After` (RFC 9110 §10.2.3): seconds, or
/// a date. A date is measured by the clock of the server, its header `Date`, or by this machine's if there is
/// no such header. A date in the past is no wait; a wait for a date is up to a second longer, because dates
/// have no fractions. None: there is no `Retry-After`, or it cannot be read.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = |text| httpdate::parse_http_date(text).ok();
    let now = headers.get(DATE).and_then(|now| date(now.to_str().ok()?)).unwrap_or(now);
    let until = date(text)?.duration_since(now).unwrap_or_default();
    let second = Duration::from_secs(u64::from(until.subsec_nanos() > 0));
    Some(Duration::from_secs(until.as_secs()) + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R13, R31, t27
    #[test]
    fn a_wait_is_never_shorter_than_the_header_says() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let half = now + Duration::from_millis(500);
        for (text, at, seconds) in [
            ("0", now, Some(0)),
            ("5", now, Some(5)),
            (" 86400 ", now, Some(86_400)),
            ("99999999999999999999999", now, Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", now, Some(3)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", half, Some(3)),
            ("Sunday, 06-Nov-94 08:49:40 GMT", now, Some(3)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", now, Some(0)),
            ("", now, None),
            ("-1", now, None),
            ("1.5", now, None),
            ("soon", now, None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(retry_after(&headers, at), seconds.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
        let mut headers =
            HeaderMap::from_iter([(RETRY_AFTER, "Sun, 06 Nov 1994 08:49:40 GMT".parse().unwrap())]);
        headers.insert(DATE, "Sun, 06 Nov 1994 08:49:00 GMT".parse().unwrap());
        assert_eq!(retry_after(&headers, now), Some(Duration::from_secs(40)), "by the server's clock");
    }
}
