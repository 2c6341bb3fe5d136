//! Which destination takes which type, and what the program says of it.
use super::*;
use twinbox::log::StartPosition;

fn types(patterns: &[&str]) -> Vec<twinbox_core::TypePattern> {
    patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()
}

pub(super) async fn publish_types(store: &Store<Postgres>, types: &[&str]) {
    let mut tx = store.begin().await.unwrap();
    let draft =
        |(n, event_type): (usize, &&str)| Draft::raw(*event_type, 1, "{}").id(format!("m-{n}")).key("k");
    let drafts = types.iter().enumerate().map(draft).collect();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_type_goes_where_its_route_leads_and_none_vanishes_unsaid() {
    let (store, orders, rest) = (database::postgres().await, Target::shared(), Target::shared());
    publish_types(&store, &["orders.placed", "billing.paid", "stray.cat", "orders.paid", "stray.dog"]).await;
    let to_orders = Relay::with_options(
        (*store).clone(),
        Nats::with_options(orders.options().id("orders")).unwrap(),
        RelayOptions::new().types(types(&["orders.*"])).types_of_other_destinations(types(&["billing.>"])),
    );
    let to_rest = Relay::with_options(
        (*store).clone(),
        Nats::with_options(rest.options().id("rest")).unwrap(),
        RelayOptions::new().types(types(&["billing.>"])),
    );
    let (to_orders, to_rest) = (Running::run(to_orders), Running::run(to_rest));
    to_orders.published(2).await;
    to_rest.published(1).await;
    let (to_orders, to_rest) = (to_orders.stop().await, to_rest.stop().await);
    assert_eq!((to_orders.published(), to_orders.unrouted()), (2, 2));
    assert_eq!((to_rest.published(), to_rest.unrouted()), (1, 0));
    assert_eq!((orders.count().await, rest.count().await), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_destination_on_a_log_with_messages_has_to_say_where_it_starts() {
    let (store, target) = (database::postgres().await, Target::shared());
    let relay = |start| {
        let options = RelayOptions::new().start(start);
        Relay::with_options((*store).clone(), target.destination(), options)
    };
    publish(&store, 0..3).await;
    let refused = relay(StartPosition::IfEmpty).run(CancellationToken::new());
    let error = timeout(PATIENCE, refused).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("set where it starts") && error.contains("old name"), "{error}");
    let running = Running::run(relay(StartPosition::Beginning));
    running.published(3).await;
    running.stop().await;
    // It is not new any more.
    publish(&store, 3..4).await;
    let running = Running::run(relay(StartPosition::IfEmpty));
    running.published(1).await;
    running.stop().await;
}

/// A thousand messages a second, for a third of a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_kept() {
    let (store, target) = (database::postgres().await, Target::shared());
    publish(&store, 0..350).await;
    let started = std::time::Instant::now();
    let options = RelayOptions::new().rate(1000);
    let running = Running::run(Relay::with_options((*store).clone(), target.destination(), options));
    running.published(350).await;
    assert!(started.elapsed() > Duration::from_millis(240), "{:?}", started.elapsed());
    running.stop().await;
}
