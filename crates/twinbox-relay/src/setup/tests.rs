use super::*;
use std::fs;

fn load(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    fs::write(&path, text).unwrap();
    Config::load(Some(&path), std::iter::empty()).map_err(|e| e.to_string())
}

const BUS: &str = "[database]
url = 'postgres://localhost/orders'
service = 'orders'
[destinations.bus]
kind = 'eventbridge'
bus = 'orders'
region = 'eu-central-1'
rate = 100
types = ['orders.*', 'billing.>']
";

#[test]
fn a_bus_is_a_destination() {
    let config = load(BUS).unwrap();
    assert_eq!(config.destinations["bus"].common().rate, Some(100));
    let bus = destination("bus", &config.destinations["bus"]).unwrap();
    assert_eq!(bus.id(), "bus");
    for (wrong, text) in [
        ("request_bytes = '2MiB'", "request_bytes_max"),
        ("request_bytes = 'much'", "write it like 256KiB or 1MiB"),
        ("request_entries = 101", "request_entries_max"),
    ] {
        let loaded = load(&(BUS.to_owned() + wrong));
        let error = loaded.and_then(|config| match destination("bus", &config.destinations["bus"]) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        });
        let error = error.unwrap_err();
        assert!(error.contains(text), "{wrong}: {error}");
    }
    let config = load(&(BUS.to_owned() + "request_bytes = '256KiB'")).unwrap();
    let Destination::EventBridge(bus) = &config.destinations["bus"] else { panic!("it is a bus") };
    assert_eq!(bus.request_bytes.unwrap().0, 256 * 1024);
}

#[test]
fn a_relay_takes_the_types_of_the_file() {
    let options = options(&load(BUS).unwrap(), "bus", true).unwrap();
    assert!(options.takes("billing.invoice.issued") && !options.takes("stray.cat"));
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

/// The destination of another schema takes every type, but only of its own schema.
#[test]
fn a_type_is_routed_within_its_schema() {
    let two = load(TWO_SCHEMAS).unwrap();
    assert!(options(&two, "events", true).unwrap().is_unrouted("stray.cat"));
    let one = load(&TWO_SCHEMAS.replace("schema = \"billing\"", "schema = \"twinbox\"")).unwrap();
    assert_eq!(one.outbox_of("invoices"), "twinbox");
    assert!(!options(&one, "events", true).unwrap().is_unrouted("stray.cat"));
}
