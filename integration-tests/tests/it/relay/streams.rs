//! A destination whose partitions are spread over several streams.
use super::{faults::cluster::consumers::Consumers, *};
use crate::support::{publisher::secret, wait::eventually};
use futures::TryStreamExt as _;
use twinbox::{
    log::StartPosition,
    nats::{ErrorKind, NatsOptions, StreamOptions},
    relay::CircuitBreakerState,
    seam::destination::Destination as _,
};

fn options(target: &Target, streams: u32) -> NatsOptions {
    target.existing().streams(streams).create_stream(StreamOptions::default())
}

fn nats(target: &Target, streams: u32) -> Nats {
    Nats::with_options(options(target, streams)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_is_in_one_of_four_streams_and_each_key_in_order() {
    let (store, target) = (database::postgres().await, Target::shared());
    let nats = nats(&target, 4);
    let running = Running::run(Relay::new((*store).clone(), nats.clone()));
    publish(&store, 0..2000).await;
    running.published(2000).await;
    let mut found = 0;
    for (number, stream) in nats.each_stream().iter().enumerate() {
        let name = format!("{}-{number}", target.name);
        let held = target.jetstream().await.get_stream(&name).await.unwrap();
        let subjects = held.info_with_subjects(">").await.unwrap();
        let subjects: Vec<_> = subjects.try_collect().await.unwrap();
        for (subject, _) in subjects {
            let partition: usize = subject.split('.').nth(2).unwrap().parse().unwrap();
            assert_eq!(partition % 4, number, "{subject} is in {name}");
        }
        found += stream.stream_status().await.unwrap().messages;
    }
    assert_eq!(found, 2000);
    let consumers = Consumers::start(&store, nats.clone()).await;
    consumers.handled(2000).await;
    publish(&store, 2000..3000).await;
    consumers.handled(3000).await;
    let lag = nats.lag_reader().await.unwrap().durable("tests.cluster").await.unwrap().unwrap();
    assert_eq!(lag.waiting, 0);
    consumers.stop().await;
    running.stop().await;
}

/// Its messages are lost with it. The relay has no way around it, but consumers have.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_gone_keeps_consumers_from_no_other() {
    let (store, target) = (database::postgres().await, Target::shared());
    let nats = nats(&target, 2);
    let running = Running::run(Relay::new((*store).clone(), nats.clone()));
    publish(&store, 0..400).await;
    running.published(400).await;
    running.stop().await;
    let [left, gone] = nats.each_stream().try_into().unwrap();
    let messages = left.stream_status().await.unwrap().messages;
    let gone = gone.stream_status().await.unwrap().name;
    target.jetstream().await.delete_stream(gone).await.unwrap();
    let existing = Nats::with_options(target.existing().streams(2)).unwrap();
    let consumers = Consumers::start(&store, existing).await;
    consumers.handled(messages as u32).await;

    let running = Running::run(Relay::new((*store).clone(), nats));
    publish(&store, 400..600).await;
    consumers.handled(messages as u32 + 200).await;
    consumers.stop().await;
    running.stop().await;
}

#[tokio::test]
async fn a_stream_with_a_faulty_option_keeps_no_other_from_being_created() {
    let target = Target::shared();
    let (nats, jetstream) = (nats(&target, 2), target.jetstream().await);
    nats.provision(&StreamOptions::default()).await.unwrap();
    let [first, second] = ["0", "1"].map(|number| format!("{}-{number}", target.name));
    let mut config = jetstream.get_stream(&first).await.unwrap().cached_info().config.clone();
    config.allow_rollup = true;
    jetstream.update_stream(config).await.unwrap();
    jetstream.delete_stream(&second).await.unwrap();
    let error = nats.provision(&StreamOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let text = error.to_string();
    assert!(text.contains(&first) && text.contains("`allow_rollup_hdrs`"), "{text}");
    jetstream.get_stream(&second).await.unwrap();
}

/// What the refusal says to do instead is done.
#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_streams_is_refused_and_the_steps_work() {
    let (store, target) = (database::postgres().await, Target::shared());
    let running = Running::run(Relay::new((*store).clone(), nats(&target, 4)));
    publish(&store, 0..500).await;
    running.published(500).await;
    for streams in [1, 2, 8] {
        let error = nats(&target, streams).provision(&StreamOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(error.to_string().contains("change one of them") || streams == 1, "{error}");
        let existing = Nats::with_options(target.existing().streams(streams)).unwrap();
        let refused = existing.connect(&secret()).await.err().unwrap();
        println!("{streams} streams: {error}; {:?}", std::error::Error::source(&refused));
    }
    let consumers = Consumers::start(&store, nats(&target, 4)).await;
    consumers.handled(500).await;
    running.stop().await;
    consumers.stop().await;

    let other = Target::shared();
    let other = Nats::with_options(options(&other, 2).id("other")).unwrap();
    let start = RelayOptions::new().start(StartPosition::Now);
    let running = Running::run(Relay::with_options((*store).clone(), other.clone(), start));
    eventually(async || (running.breaker.state() == CircuitBreakerState::Closed).then_some(())).await;
    publish(&store, 500..1000).await;
    let consumers = Consumers::go_on(&store, other);
    consumers.handled(1000).await;
    consumers.stop().await;
    running.stop().await;
}
