use super::*;
use std::{fs, path::Path};
use twinbox_core::RetryPolicy;
use twinbox_log::StartPosition;

const FILE: &str = "
        [database]
        url = 'postgres://localhost/orders'
        service = 'orders'
        [destinations.events]
        kind = 'nats'
        url = 'nats://localhost'
    ";

fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    fs::write(&path, text).unwrap();
    let environment = environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    Config::load(Some(&path), environment).map_err(|e| e.to_string())
}

#[test]
fn the_environment_overrides_the_file_and_the_file_the_defaults() {
    let config = load(FILE, &[]).unwrap();
    let Destination::Nats(nats) = &config.destinations["events"] else { panic!("it is NATS") };
    assert_eq!((nats.stream.as_str(), nats.partitions, nats.start), ("EVENTS", 16, None));
    let environment = [
        ("TWINBOX_RELAY__DESTINATIONS__EVENTS__STREAM", "ORDERS"),
        ("TWINBOX_RELAY__DESTINATIONS__EVENTS__PARTITIONS", "4"),
        ("TWINBOX_RELAY__DATABASE__SERVICE", "shop"),
        ("TWINBOX_RELAY__DATABASE__IDLE_POLL", "1s"),
    ];
    assert_eq!(config.database.idle_poll.0.as_millis(), 25);
    let config = load(FILE, &environment).unwrap();
    let Destination::Nats(nats) = &config.destinations["events"] else { panic!("it is NATS") };
    assert_eq!((nats.stream.as_str(), nats.partitions), ("ORDERS", 4));
    assert_eq!((config.database.service.as_str(), config.database.idle_poll.0.as_secs()), ("shop", 1));
}

#[test]
fn an_error_names_an_unknown_name_with_its_line() {
    let error = load(&FILE.replace("service =", "servise ="), &[]).unwrap_err();
    assert!(error.contains("line 4") && error.contains("servise") && error.contains("service"), "{error}");
    let error = load("[database", &[]).unwrap_err();
    assert!(error.contains("line 1"), "{error}");
    let error = load(FILE, &[("TWINBOX_RELAY__DATABASE__URL__X", "1")]).unwrap_err();
    assert!(error.contains("TWINBOX_RELAY__DATABASE__URL__X"), "{error}");
}

#[test]
fn a_secret_has_one_origin_and_is_not_printed() {
    assert_eq!(secret("url", Some("a"), None).unwrap(), "a");
    let both = secret("url", Some("a"), Some(Path::new("b"))).unwrap_err();
    assert_eq!(both.to_string(), "set one of `url` and `url_file`");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("url");
    fs::write(&file, "postgres://secret\n").unwrap();
    assert_eq!(secret("url", None, Some(&file)).unwrap(), "postgres://secret");
    let config = load(&FILE.replace("localhost", "me:secret@localhost"), &[]).unwrap();
    assert!(!format!("{config:?}").contains("secret"));
}

const FULL: &str = r#"[database]
url = "postgres://me:secret@localhost/orders?password=secret"
service = "orders"

[destinations.events]
kind = "nats"
url = "nats://localhost"
types = ["orders.*", "billing.>"]
start = "2026-01-31T12:00:00Z"
retry = "patient"
on_exhausted = "park_key"
rate = 500
lease = "10s"

[retry.patient]
base = "1s"
max = "1m"
attempts = 20
"#;

#[test]
fn the_settings_of_a_destination_are_read() {
    let config = load(FULL, &[]).unwrap();
    let common = config.destinations["events"].common();
    assert_eq!(common.types.iter().map(ToString::to_string).collect::<Vec<_>>(), ["orders.*", "billing.>"]);
    assert!(matches!(common.start, Some(Start(StartPosition::At(_)))));
    assert_eq!((common.rate, common.lease.0.as_secs()), (Some(500), 10));
    assert_eq!(common.on_exhausted, OnExhausted::ParkKey);
    let retry = RetryPolicy::from(config.retry["patient"]);
    let seconds: Vec<_> = (1..=20).map(|n| retry.next(n, 0.0).map(|delay| delay.as_secs())).collect();
    assert_eq!((seconds[0], seconds[2], seconds[18], seconds[19]), (Some(1), Some(4), Some(60), None));
}

/// R7
#[test]
fn the_keeper_runs_unless_it_is_switched_off() {
    let keeper = load(FULL, &[]).unwrap().keeper;
    assert_eq!((keeper.enabled, keeper.keep.0.as_secs()), (true, 7 * 24 * 3600));
    let table = "\n[keeper]\nenabled = false\nkeep = \"2d\"\ndatabase_url = \"postgres://me:secret@db/a\"\n";
    let config = load(&format!("{FULL}{table}"), &[]).unwrap();
    assert_eq!((config.keeper.enabled, config.keeper.keep.0.as_secs()), (false, 2 * 24 * 3600));
    assert!(config.keeper.database_url.is_some() && !format!("{config:?}").contains("secret"));
    let error = load(&format!("{FULL}\n[keeper]\nkeeps = \"2d\"\n"), &[]).unwrap_err();
    assert!(error.contains("line 21:") && error.contains("did you mean `keep`?"), "{error}");
}

#[test]
fn an_error_names_the_line_and_the_fix() {
    let table = [
        ("service = ", "servise = ", "line 3:", "did you mean `service`?"),
        ("on_exhausted", "on_exausted", "line 11:", "did you mean `on_exhausted`?"),
        ("\"orders.*\"", "\"orders.*.\"", "line 8:", "write words joined by dots"),
        ("\"10s\"", "\"ten\"", "line 13:", "write it like 500ms, 30s or 5m"),
        ("\"10s\"", "\"10M\"", "line 13:", "the unit `M` is ambiguous"),
        ("\"2026-01-31T12:00:00Z\"", "\"yesterday\"", "line 9:", "write beginning, now, or a time"),
        ("kind = \"nats\"", "kind = \"natz\"", "line 6:", "did you mean `nats`?"),
        ("park_key", "park", "line 11:", "did you mean `park_key`?"),
        ("\"patient\"", "\"patience\"", "line 10:", "did you mean `patient`?"),
        ("\"patient\"", "\"thrice\"", "line 10:", "add a table `[retry.thrice]`"),
        ("[retry.patient]", "[retry.client]", "line 15:", "give `[retry.client]` another name"),
        ("attempts = 20", "", "line 15:", "missing field `attempts`"),
    ];
    for (right, wrong, line, fix) in table {
        let error = load(&FULL.replace(right, wrong), &[]).unwrap_err();
        assert!(error.contains(line) && error.contains(fix), "{wrong}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn every_value_is_printed_with_its_origin_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    fs::write(&path, FULL).unwrap();
    let set = ("TWINBOX_RELAY__DESTINATIONS__EVENTS__STREAM".to_owned(), "ORDERS".to_owned());
    let printed = Config::print(Some(&path), [set].into_iter()).unwrap();
    for line in [
        "database.url = \"postgres://***@localhost/orders?***\"  # file",
        "database.namespace = \"twinbox\"  # default",
        "destinations.events.stream = \"ORDERS\"  # TWINBOX_RELAY__DESTINATIONS__EVENTS__STREAM",
        "destinations.events.lease = \"10s\"  # file",
        "destinations.events.in_flight = 4000  # default",
        "retry.patient.base = \"1s\"  # file",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}\nin\n{printed}");
    }
    assert!(!printed.contains("secret"), "{printed}");
}

#[test]
fn no_part_of_a_password_is_printed() {
    for (url, printed) in [
        ("postgres://me:p@ss/w:rd?x#y@localhost/orders", "postgres://***"),
        ("postgres://me:p@ss/w:rd@localhost/orders", "postgres://***@localhost/orders"),
        ("postgres://localhost/orders?sslpassword=p@ss", "postgres://***"),
        ("host=localhost user=me password=pass", "***"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("relay.toml");
        fs::write(&path, FILE.replace("postgres://localhost/orders", url)).unwrap();
        let all = Config::print(Some(&path), std::iter::empty()).unwrap();
        let line = format!("database.url = \"{printed}\"  # file");
        assert!(all.lines().any(|printed| printed == line), "{line}\nin\n{all}");
    }
}

const TWO_SCHEMAS: &str = r#"[database]
url = "postgres://localhost/shop"
service = "orders"

[schemas.billing]
service = "billing"

[destinations.events]
kind = "nats"
types = ["orders.*"]

[destinations.invoices]
kind = "nats"
schema = "billing"
"#;

#[test]
fn each_destination_reads_the_outbox_of_its_schema() {
    let config = load(TWO_SCHEMAS, &[]).unwrap();
    let outboxes: Vec<_> = config.outboxes().map(|outbox| (outbox.name, outbox.service)).collect();
    assert_eq!(outboxes, [("twinbox", "orders"), ("billing", "billing")]);
    assert_eq!((config.outbox_of("events"), config.outbox_of("invoices")), ("twinbox", "billing"));
    let set = load(TWO_SCHEMAS, &[("TWINBOX_RELAY__SCHEMAS__STOCK__SERVICE", "stock")]).unwrap();
    assert_eq!(set.outboxes().nth(2).map(|outbox| outbox.name), Some("stock"));
}

#[test]
fn an_error_about_a_schema_names_the_line_and_the_fix() {
    let unknown = "write `twinbox`, `billing`, or add a table `[schemas.";
    let table = [
        ("schema = \"billing\"", "schema = \"biling\"", "line 14:", "did you mean `billing`?"),
        ("schema = \"billing\"", "schema = \"stock\"", "line 14:", unknown),
        ("[schemas.billing]", "[schemas.twinbox]", "line 5:", "has the name of the outbox of `[database]`"),
        ("service = \"billing\"", "service = \"orders\"", "line 6:", "give each a service of its own"),
        ("service = \"billing\"", "servise = \"billing\"", "line 6:", "did you mean `service`?"),
    ];
    for (right, wrong, line, fix) in table {
        let error = load(&TWO_SCHEMAS.replace(right, wrong), &[]).unwrap_err();
        assert!(error.contains(line) && error.contains(fix), "{wrong}: {error}");
    }
    let set = [("TWINBOX_RELAY__DESTINATIONS__EVENTS__SCHEMA", "stock")];
    let error = load(TWO_SCHEMAS, &set).unwrap_err();
    assert!(error.contains("\"events\" reads the outbox \"stock\"") && error.contains(unknown), "{error}");
}

#[test]
fn a_destination_reads_a_database_of_its_own_and_services_are_not_shared() {
    let acme = TWO_SCHEMAS.to_owned()
        + "[databases.acme]\nurl = 'postgres://u:hush@db/acme'\nservice = 'shop-acme'\nnamespace = 'events'\n"
        + "[destinations.acme-events]\nkind = 'nats'\ndatabase = 'acme'\n";
    let config = load(&acme, &[("TWINBOX_RELAY__DATABASES__ACME__MAX_CONNECTIONS", "3")]).unwrap();
    let outbox = config.outboxes().nth(2).unwrap();
    assert_eq!((outbox.name, outbox.service, outbox.namespace), ("acme", "shop-acme", "events"));
    assert_eq!((outbox.database.max_connections, config.outbox_of("acme-events")), (3, "acme"));
    for (right, wrong, line, fix) in [
        ("database = 'acme'", "database = 'acne'", "line 19:", "did you mean `acme`?"),
        ("service = 'shop-acme'", "service = 'orders'", "line 17:", "give each a service of its own"),
        (
            "[databases.acme]",
            "[databases.billing]",
            "line 15:",
            "the name of the outbox of `[schemas.billing]`",
        ),
    ] {
        let error = load(&acme.replace(right, wrong), &[]).unwrap_err();
        assert!(error.contains(line) && error.contains(fix), "{wrong}: {error}");
    }
    let both = acme.replace("database = 'acme'", "database = 'acme'\nschema = 'billing'");
    assert!(load(&both, &[]).unwrap_err().contains("duplicate field"));
}

#[test]
fn a_vendor_has_a_profile_that_the_program_can_follow() {
    let with = |line: &str| {
        let vendor = "\n[vendors.mail]\nprofile = 'resend'\nurl = 'https://api.example.org'\n";
        load(&format!("{FILE}{}", vendor.replace("profile = 'resend'", line)), &[])
    };
    let config = with("profile = 'resend'").unwrap();
    assert_eq!(config.vendors["mail"].profile().unwrap().name, "resend");
    let in_doubt = "profile = 'bigcommerce'\nin_doubt = 'at_most_once'";
    let profile = with(in_doubt).unwrap().vendors["mail"].profile().unwrap();
    assert_eq!(profile.recovery, twinbox_effects::Recovery::AtMostOnce);
    for (line, says) in [
        ("profile = 'resent'", "line 10: vendor \"mail\": there is no profile \"resent\""),
        ("profile = 'resent'", "did you mean `resend`?"),
        ("profile = 'bigcommerce'", "set `in_doubt`"),
        ("profile = 'resend'\nretry = 'soon'", "line 11: vendor \"mail\" has the unknown retry policy"),
        (
            "profile = 'resend'\nschema = 'x'",
            "vendor \"mail\" reads the outbox \"x\", which is not in the file",
        ),
        ("profile = 'resend'\nin_doubt = 'x'", "x"),
    ] {
        let error = with(line).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
