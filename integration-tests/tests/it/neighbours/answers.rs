//! A neighbour that lets the server answer it on subjects of another type. The server does not check whether
//! the neighbour may publish there.
use super::*;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use twinbox::BatchTx;

/// How many answers each partition gets.
const OF_PARTITION: u64 = 300;
/// Tokens in the place of a partition that does not exist, and how many answers they get.
const BEYOND: [(&str, u64); 2] = [("99", 100), ("x", 100)];

#[event_handler(consumer = "billing.invoice", batch = 50)]
async fn invoices(tx: &mut BatchTx<'_, Postgres>, orders: Vec<Delivery<Placed>>) -> HandlerResult {
    for order in orders {
        effect::<Postgres>(tx, order.n).await?;
    }
    Ok(())
}

fn billing_in_batches(world: &World<Postgres>, broker: &SharedBroker) -> Consumer<Postgres, ()> {
    Consumer::new((**world).clone(), ()).transport(broker.nats("billing")).handler::<invoices>()
}

/// Publishes reviews whose answers come as orders: that a review is stored, that it is there already, or that
/// it is refused. Returns how many.
async fn provoke_answers(broker: &SharedBroker) -> u64 {
    let neighbour = broker.client("reviews").await;
    let partitions = (0..16).map(|n| (n.to_string(), OF_PARTITION));
    let mut all = 0;
    for (token, count) in partitions.chain(BEYOND.map(|(token, count)| (token.to_owned(), count))) {
        let answers = format!("events.{token}.orders.placed");
        for n in 0..count {
            let mut headers = HeaderMap::new();
            match n % 3 {
                0 => {}
                1 => headers.insert("Nats-Msg-Id", "review-1"),
                _ => headers.insert("Nats-Expected-Stream", "OTHER"),
            }
            let (review, to) = ("events.5.reviews.junk", answers.clone());
            neighbour.publish_with_reply_and_headers(review, to, headers, "junk".into()).await.unwrap();
        }
        neighbour.flush().await.unwrap();
        holds(broker, &answers, count).await;
        all += count;
    }
    all
}

/// Sends an order of the key 1.
async fn send_order(broker: &SharedBroker, n: i64) {
    let name = format!("order-{n}");
    let partition = id::partition(Some("1"), MessageId::of("test", "orders.placed", &name), 16);
    let subject = format!("events.{partition}.orders.placed");
    let (headers, payload) = (headers(&name, "orders.placed", "1"), format!("{{\"n\":{n}}}"));
    send(&broker.client("admin").await, &subject, headers, &payload).await;
}

fn dropped(counters: &PrometheusHandle, consumer: &str) -> u64 {
    let name = format!("twinbox_consumer_server_answers_total{{consumer=\"{consumer}\"}} ");
    let counted = counters.render();
    counted.lines().find_map(|line| line.strip_prefix(name.as_str())?.parse().ok()).unwrap_or_default()
}

/// The sequences of the last messages of each partition.
async fn last_sequences(broker: &SharedBroker) -> Vec<i64> {
    let stream = jetstream::new(broker.client("admin").await).get_stream(STREAM).await.unwrap();
    let mut last = Vec::new();
    for n in 0..16 {
        let subject = format!("events.{n}.orders.placed");
        let answer = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
        let text = std::str::from_utf8(&answer.payload).unwrap();
        assert!(answer.headers.is_empty() && text.contains("\"stream\":\"EVENTS\""), "{text}");
        last.push(i64::try_from(answer.sequence).unwrap());
    }
    last
}

/// With the order of keys: every partition is read on behind the answers, and they are not read again.
#[tokio::test]
async fn answers_on_subjects_of_another_type_make_no_dead_letters() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let counters = recorder.handle();
    let _counted = metrics::set_default_local_recorder(&recorder);
    let (lines, _logged) = Lines::record();
    let (world, broker) = start().await;
    send_order(&broker, 1).await;
    provoke_answers(&broker).await;
    let last = last_sequences(&broker).await;
    let is_behind = async || {
        let sequences = "SELECT sequence FROM twinbox.partition_leases ORDER BY partition";
        let sequences = sqlx::query_scalar::<_, i64>(sequences).fetch_all(world.pool()).await.unwrap();
        sequences.len() == last.len() && sequences.iter().zip(&last).all(|(settled, last)| settled >= last)
    };
    run_until(search(&world, &broker), async || {
        let count = dropped(&counters, "search.index");
        count >= 16 * OF_PARTITION && world.effects().await == [2001] && is_behind().await
    })
    .await;

    let before = dropped(&counters, "search.index");
    send_order(&broker, 2).await;
    run_until(search(&world, &broker), async || world.effects().await == [2001, 2002]).await;
    assert_eq!(dropped(&counters, "search.index"), before, "no answer is read again");
    assert_eq!((world.rows("dead_letters").await, world.rows("parked_deliveries").await), (0, 0));
    assert_eq!(world.rows("inbox").await, 2);
    let logged = lines.saying("dropped answers of the server").len();
    assert!((1..20).contains(&logged), "{logged} lines");
}

/// Drops answers without order, where consumers read all partitions, also those that do not exist.
async fn are_dropped_by(consumer: impl Fn(&World<Postgres>, &SharedBroker) -> Consumer<Postgres, ()>) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let counters = recorder.handle();
    let _counted = metrics::set_default_local_recorder(&recorder);
    let (world, broker) = start().await;
    send_order(&broker, 1).await;
    let answers = provoke_answers(&broker).await;
    send_order(&broker, 2).await;
    let stream = jetstream::new(broker.client("admin").await).get_stream(STREAM).await.unwrap();
    run_until(consumer(&world, &broker), async || {
        let durable = stream.consumer_info("billing_invoice").await;
        let is_settled = durable.is_ok_and(|info| (info.num_pending, info.num_ack_pending) == (0, 0));
        let count = dropped(&counters, "billing.invoice");
        is_settled && count >= answers && world.effects().await == [1, 2]
    })
    .await;
    assert_eq!((world.rows("dead_letters").await, world.rows("inbox").await), (0, 2));
}

#[tokio::test]
async fn answers_are_dropped_by_consumers_without_order() {
    are_dropped_by(billing).await;
}

#[tokio::test]
async fn answers_are_dropped_before_they_are_in_a_batch() {
    are_dropped_by(billing_in_batches).await;
}
