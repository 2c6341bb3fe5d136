//! A real Prometheus beside real faults.
use super::{
    RULES, alerts,
    application::{self, Recorded},
    consumers,
    prometheus::Prometheus,
    relays::{self, Fragile},
    watch::Watch,
};
use std::net::SocketAddr;
use twinbox_testkit::{proxy::Proxy, skipped};

/// Nobody listens there: the address of a relay before it has started.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

/// Prometheus reads two processes of the program `twinbox-relay` and the application of this process. An hour
/// of the rules is a second. All faults are real ones, beside each other; no alert is served by hand.
#[tokio::test]
async fn each_alert_fires_in_its_real_fault_and_clears_after_it() {
    let Some(binary) = std::env::var_os("TWINBOX_PROMETHEUS") else {
        return skipped("alerts of a real Prometheus: it is not there; TWINBOX_PROMETHEUS names it");
    };
    let recorded = Recorded::start();
    let [fragile, healthy] = [Proxy::start(NOBODY).await.unwrap(), Proxy::start(NOBODY).await.unwrap()];
    let application = recorded.serve().await;
    let quick = [healthy.address(), application];
    let watch = &Watch::new(Prometheus::start(&binary, RULES, fragile.address(), quick).await);
    let relays = async {
        // The one alert that needs that no relay runs.
        let relay = Fragile::start(watch, &fragile).await;
        tokio::join!(relay.outages(watch), relays::refusals(watch, &healthy));
    };
    tokio::join!(
        relays,
        application::effects(watch),
        application::jobs(watch),
        application::keeper(watch),
        consumers::dead_letters(watch),
        consumers::full(watch),
        consumers::failures(watch),
        consumers::conflicts(watch),
        consumers::lag(watch),
        consumers::losses(watch),
    );
    assert_eq!(*watch.seen.borrow(), alerts(), "each alert has a fault here");
}
