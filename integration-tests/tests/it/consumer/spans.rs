//! Spans of deliveries under the names of OpenTelemetry, and the trace that goes with a message.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    logged::record,
    relay::{Running, Target},
    stores::{Confirmed, Placed, TestDb, World, effect},
};
use opentelemetry::trace::{SpanKind, Status, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use sqlx::Postgres;
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;
use twinbox::{
    BatchTx, Consumer, Delivery, Dialect, Draft, HandlerResult, Message, Policy, Tx, consumer::DeliveryOrder,
    event_handler, handler_fn, nats::Nats,
};

#[event_handler(consumer = "tests.spans", max_attempts = 1)]
async fn confirm<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    if order.n == 2 { Err("no".into()) } else { Ok(()) }
}

#[event_handler(consumer = "tests.spans-batch", batch = 10)]
async fn all<DB: Dialect>(_: &mut BatchTx<'_, DB>, _: Vec<Delivery<Placed>>) -> HandlerResult {
    Ok(())
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    span.attributes
        .iter()
        .find(|attribute| attribute.key.as_str() == key)
        .map(|found| found.value.to_string())
}

fn traceparent(span: &SpanData) -> String {
    format!("00-{}-{}-01", span.span_context.trace_id(), span.span_context.span_id())
}

async fn message<DB: TestDb>(world: &World<DB>, event_type: &str) -> Message {
    world.published(event_type, 10).await.unwrap().remove(0)
}

/// R39, R43, fault 49
async fn row_49_a_delivery_links_to_the_span_that_published_it<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
    let recording = record(tracing_subscriber::registry().with(layer));
    let commit = async |drafts| {
        let mut tx = world.begin().await.unwrap();
        world.outbox().publish_all(&mut tx, drafts).await.unwrap();
        tx.commit().await.unwrap();
    };
    commit(vec![Draft::of(&Placed { n: 1 }).unwrap()]).instrument(tracing::info_span!("request")).await;
    let garbage = "00-00000000000000000000000000000000-0000000000000000-00";
    commit(vec![Draft::of(&Placed { n: 2 }).unwrap().traceparent(garbage)]).await;
    let consumer = Consumer::new((*world).clone(), ()).handler::<confirm>().handler::<all>();
    run_until(consumer, async || world.rows("inbox").await == 4).await;
    drop(recording);

    let spans = exporter.get_finished_spans().unwrap();
    let request = spans.iter().find(|span| span.name == "request").unwrap();
    assert_eq!(message(&world, "orders.placed").await.traceparent, Some(traceparent(request)));
    let of = |consumer: &str| {
        let group =
            |span: &&SpanData| attribute(span, "messaging.consumer.group.name").as_deref() == Some(consumer);
        spans.iter().filter(group).collect::<Vec<_>>()
    };
    let [first, second] = of("tests.spans")[..] else { panic!("{spans:?}") };
    let (handled, failed) = if first.links.is_empty() { (second, first) } else { (first, second) };
    assert_eq!((&*handled.name, &handled.span_kind), ("process orders.placed", &SpanKind::Consumer));
    assert_eq!(handled.links[0].span_context.span_id(), request.span_context.span_id());
    assert_ne!(handled.span_context.trace_id(), request.span_context.trace_id());
    assert_eq!(attribute(handled, "messaging.operation.name").as_deref(), Some("process"));
    let id = message(&world, "orders.placed").await.message_id().to_string();
    assert_eq!(attribute(handled, "messaging.message.id"), Some(id));
    assert_eq!((handled.status.clone(), attribute(handled, "error.type")), (Status::Unset, None));
    assert!(failed.links.is_empty() && matches!(failed.status, Status::Error { .. }), "{failed:?}");
    assert_eq!(attribute(failed, "error.type").as_deref(), Some("dead_lettered"));
    // What a handler publishes belongs to its own span.
    assert_eq!(message(&world, "orders.confirmed").await.traceparent, Some(traceparent(handled)));
    assert!(of("tests.spans-batch").iter().any(|span| span.links.len() == 1), "{spans:?}");
}

/// Read partition by partition.
async fn an_ordered_delivery_that_fails_says_so() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
    publish(&world, 2..3).await;
    relay.published(1).await;
    let recording = record(tracing_subscriber::registry().with(layer));
    let ordered = Policy::new("tests.spans").max_attempts(1).order(DeliveryOrder::Key);
    let consumer =
        Consumer::new((*world).clone(), ()).transport(Nats::with_options(target.options()).unwrap());
    let fails = async |(): &(), _: &mut Tx<'_, Postgres>, _: Delivery<Placed>| Err("no".into());
    run_until(consumer.register(handler_fn(ordered, fails)), async || world.rows("inbox").await == 1).await;
    drop(recording);
    relay.stop().await;
    let spans = exporter.get_finished_spans().unwrap();
    let process = spans.iter().find(|span| span.name == "process orders.placed").unwrap();
    assert_eq!(attribute(process, "error.type").as_deref(), Some("dead_lettered"));
}

cases! {
    both: [row_49_a_delivery_links_to_the_span_that_published_it]
    postgres: [an_ordered_delivery_that_fails_says_so]
}
