use super::*;
use crate::Nats;

#[track_caller]
fn refused(options: NatsOptions, option: &str) {
    let error = Nats::with_options(options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    assert!(error.to_string().contains(&format!("`{option}`")), "{error}");
}

#[test]
fn an_invalid_option_is_named() {
    let good = || NatsOptions::new("nats://me:secret@localhost:4222");
    Nats::with_options(good()).unwrap();
    for scheme in ["ftp", "ws", "wss"] {
        refused(NatsOptions::new(format!("{scheme}://me:secret@localhost")), "url");
    }
    refused(good().id(""), "id");
    refused(good().stream("A.B"), "stream");
    refused(good().stream(""), "stream");
    for prefix in ["", "a.*", "a..b", ">", "a b", "$JS", "a\r\n"] {
        refused(good().prefix(prefix), "prefix");
        refused(good().inbox_prefix(prefix), "inbox_prefix");
        refused(good().domain(prefix), "domain");
    }
    for prefix in ["", "a.*", "$JS..API", "$JS.API.", ">"] {
        refused(good().api_prefix(prefix), "api_prefix");
    }
    refused(good().domain("hub").api_prefix("$JS.hub.API"), "api_prefix");
    refused(good().partitions(0), "partitions");
    for (partitions, streams) in [(16, 0), (16, 17), (4096, 65)] {
        refused(good().partitions(partitions).streams(streams), "streams");
    }
    refused(good().publish_timeout(Duration::ZERO), "publish_timeout");
    refused(good().ack_wait(Duration::MAX), "ack_wait");
    refused(good().max_ack_pending(0), "max_ack_pending");
}

#[test]
fn requests_go_to_the_domain_or_to_the_prefix() {
    let api = |options: NatsOptions| {
        Nats::with_options(options.clone()).unwrap();
        options.api_subject("INFO")
    };
    let options = || NatsOptions::new("nats://localhost").inbox_prefix("_INBOX_orders");
    assert_eq!(api(options()), "$JS.API.INFO");
    assert_eq!(api(options().domain("hub")), "$JS.hub.API.INFO");
    assert_eq!(api(options().api_prefix("$JS.acme.API")), "$JS.acme.API.INFO");
}

#[test]
fn the_login_is_read_from_the_first_url_that_has_one() {
    let login = |url| NatsOptions::new("nats://a").server(url).login().unwrap();
    assert_eq!(login("nats://b"), None);
    assert_eq!(login("nats://me:p%40ss@b"), Some(("me".into(), Some("p@ss".into()))));
    assert_eq!(login("tls://token@b"), Some(("token".into(), None)));
    assert_eq!(login("nats://b, nats://me:x@c"), Some(("me".into(), Some("x".into()))));
    assert_eq!(NatsOptions::new("nats://a,nats://b:1").server("nats://c").servers().unwrap().len(), 3);
    refused(NatsOptions::new("nats://me:%ff@a"), "url");
}

#[test]
fn a_connection_needs_tls_unless_it_stays_here_or_may_be_plain() {
    let needs_tls = |options: NatsOptions| options.need_tls().unwrap();
    for url in ["nats://localhost", "nats://127.0.0.1:1,nats://[::1]", "nats://me:secret@localhost"] {
        assert!(!needs_tls(NatsOptions::new(url)), "{url}");
    }
    for url in ["nats://a.example.org", "nats://[::1],nats://10.0.0.2", "nats://127.1", "tls://localhost"] {
        assert!(needs_tls(NatsOptions::new(url)), "{url}");
        assert!(!needs_tls(NatsOptions::new(url).allow_plain(true)), "{url}");
    }
    let here = || NatsOptions::new("nats://localhost");
    assert!(needs_tls(here().ca_file("ca.pem")) && needs_tls(here().client_certificate("a.pem", "a.key")));
    assert!(!needs_tls(here().ca_file("ca.pem").allow_plain(true)));
}

#[test]
fn each_server_that_may_be_reached_without_tls_has_a_warning() {
    let urls = || NatsOptions::new("nats://localhost,tls://a").server("nats://b");
    assert_eq!(urls().warnings().unwrap(), [""; 0]);
    let warnings = urls().allow_plain(true).warnings().unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("`b`"), "{warnings:?}");
}

#[test]
fn secrets_are_not_printed() {
    let options = NatsOptions::new("nats://me:secret@localhost").token("secret");
    assert!(!format!("{:?}", Nats::with_options(options).unwrap()).contains("secret"));
    let error = Nats::new("ftp://me:secret@localhost").unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[test]
fn each_partition_belongs_to_one_stream() {
    let one = NatsOptions::new("nats://a").each_stream();
    assert_eq!((one.len(), &*one[0].stream, one[0].subjects()), (1, "EVENTS", vec!["events.>".into()]));
    let three = NatsOptions::new("nats://a").partitions(5).streams(3).each_stream();
    let all = Vec::from_iter(three.iter().map(|options| (&*options.stream, options.subjects())));
    let subjects = |numbers: &[u32]| Vec::from_iter(numbers.iter().map(|n| format!("events.{n}.>")));
    assert_eq!(
        all,
        [("EVENTS-0", subjects(&[0, 3])), ("EVENTS-1", subjects(&[1, 4])), ("EVENTS-2", subjects(&[2]))]
    );
}
