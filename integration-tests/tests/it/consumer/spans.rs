//! Spans of deliveries under the names of OpenTelemetry, and the trace that goes with a message.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    logged::record,
    relay::{Running, Target},
    stores::{Confirmed, Placed, TestDb, World, effect},
};
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanKind, Status, TraceContextExt as _, TraceFlags, TracerProvider as _},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use sqlx::Postgres;
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
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
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let published = named("publish orders.placed");
    assert_eq!(message(&world, "orders.placed").await.traceparent, Some(traceparent(published)));
    let of = |consumer: &str| {
        let group =
            |span: &&SpanData| attribute(span, "messaging.consumer.group.name").as_deref() == Some(consumer);
        spans.iter().filter(group).collect::<Vec<_>>()
    };
    let [first, second] = of("tests.spans")[..] else { panic!("{spans:?}") };
    let (handled, failed) = if first.links.is_empty() { (second, first) } else { (first, second) };
    assert_eq!((&*handled.name, &handled.span_kind), ("process orders.placed", &SpanKind::Consumer));
    assert_eq!(handled.links[0].span_context.span_id(), published.span_context.span_id());
    assert_ne!(handled.span_context.trace_id(), published.span_context.trace_id());
    assert_eq!(attribute(handled, "messaging.operation.name").as_deref(), Some("process"));
    let id = message(&world, "orders.placed").await.message_id().to_string();
    assert_eq!(attribute(handled, "messaging.message.id"), Some(id));
    assert_eq!((handled.status.clone(), attribute(handled, "error.type")), (Status::Unset, None));
    assert!(failed.links.is_empty() && matches!(failed.status, Status::Error { .. }), "{failed:?}");
    assert_eq!(attribute(failed, "error.type").as_deref(), Some("dead_lettered"));
    // What a handler publishes belongs to the trace of its delivery.
    let trace = handled.span_context.trace_id();
    let is_kept =
        |span: &&SpanData| span.name == "publish orders.confirmed" && span.span_context.trace_id() == trace;
    let confirmed = spans.iter().find(is_kept).unwrap();
    assert_eq!(message(&world, "orders.confirmed").await.traceparent, Some(traceparent(confirmed)));
    assert!(of("tests.spans-batch").iter().any(|span| span.links.len() == 1), "{spans:?}");
}

/// R39
async fn a_trace_goes_from_the_publish_to_the_handler() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
    let recording = record(tracing_subscriber::registry().with(layer));
    let request = tracing::info_span!("request");
    let caller = SpanContext::new(7.into(), 8.into(), TraceFlags::SAMPLED, true, "vendor=1".parse().unwrap());
    request.set_parent(Context::new().with_remote_span_context(caller)).unwrap();
    publish(&world, 0..1).instrument(request).await;
    publish(&world, 1..2).await;
    let relay = Running::start(&*world, &target);
    relay.published(2).await;
    relay.stop().await;
    let consumer =
        Consumer::new((*world).clone(), ()).transport(Nats::with_options(target.options()).unwrap());
    let policy = Policy::new("tests.spans").order(DeliveryOrder::Key);
    let handles = async |(): &(), _: &mut Tx<'_, Postgres>, order: Delivery<Placed>| {
        assert_eq!(order.message().tracestate(), (order.n == 0).then_some("vendor=1"));
        Ok(())
    };
    run_until(consumer.register(handler_fn(policy, handles)), async || world.rows("inbox").await == 2).await;
    drop(recording);

    let spans = exporter.get_finished_spans().unwrap();
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let [published] = named("publish orders.placed")[..] else { panic!("{spans:?}") };
    assert_eq!(published.parent_span_id, named("request")[0].span_context.span_id());
    assert_eq!(published.span_context.trace_id(), 7.into());
    assert_eq!(message(&world, "orders.placed").await.traceparent, Some(traceparent(published)));
    // Nobody asked for a trace of the second message.
    let [sent] = named("send orders.placed")[..] else { panic!("{spans:?}") };
    let processed = *named("process orders.placed").iter().find(|span| !span.links.is_empty()).unwrap();
    for span in [sent, processed] {
        let link = &span.links[0].span_context;
        assert_eq!(link.span_id(), published.span_context.span_id());
        assert_eq!(link.trace_state().header(), "vendor=1");
        assert_ne!(span.span_context.trace_id(), published.span_context.trace_id());
    }
    let handled = named("handle orders.placed");
    assert_eq!(handled.len(), 2);
    assert!(handled.iter().any(|span| span.parent_span_id == processed.span_context.span_id()));
    let kinds = [published, sent, processed].map(|span| span.span_kind.clone());
    assert_eq!(kinds, [SpanKind::Producer, SpanKind::Producer, SpanKind::Consumer]);
    let id = message(&world, "orders.placed").await.message_id().to_string();
    assert_eq!(attribute(sent, "messaging.message.id"), Some(id));
    assert_eq!(attribute(sent, "messaging.destination.name").as_deref(), Some("nats"));
    for (span, expected) in [
        (published, ["twinbox", "publish", "create"]),
        (sent, ["nats", "send", "send"]),
        (processed, ["nats", "process", "process"]),
    ] {
        let names = ["messaging.system", "messaging.operation.name", "messaging.operation.type"];
        assert_eq!(names.map(|name| attribute(span, name).unwrap()), expected);
    }
}

/// Without OpenTelemetry in the process.
async fn what_a_handler_publishes_inherits_the_trace<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let draft = Draft::of(&Placed { n: 1 }).unwrap().traceparent(trace).tracestate("vendor=1");
    world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
    let consumer = Consumer::new((*world).clone(), ()).handler::<confirm>();
    run_until(consumer, async || world.rows("inbox").await == 1).await;
    let confirmed = message(&world, "orders.confirmed").await;
    assert_eq!((confirmed.traceparent.as_deref(), confirmed.tracestate()), (Some(trace), Some("vendor=1")));
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
    all: [row_49_a_delivery_links_to_the_span_that_published_it, what_a_handler_publishes_inherits_the_trace]
    postgres: [a_trace_goes_from_the_publish_to_the_handler, an_ordered_delivery_that_fails_says_so]
}
