//! A cluster that lets nobody in without TLS and credentials.
use super::*;
use crate::{
    relay::faults::cluster::consumers::Consumers,
    support::{relay::Copy, wait::eventually},
};
use std::collections::HashSet;
use twinbox_testkit::cluster::{NatsCluster, SERVERS};

/// A cluster, and what its clients need.
struct Guarded {
    cluster: NatsCluster,
    authority: Authority,
    credentials: std::path::PathBuf,
    _folder: TempDir,
}

impl Guarded {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, operator) = (Authority::new(folder.path(), "ours"), Operator::new());
        let pair = authority.issue(folder.path(), "server");
        let tls = format!("tls {{ cert_file: {:?}, key_file: {:?} }}", pair.certificate, pair.key);
        let lines = operator.lines.iter().cloned().chain([tls]);
        let options = lines.fold(ServerOptions::default(), ServerOptions::line);
        let cluster = NatsCluster::start_with(options).await.unwrap();
        let credentials = operator.credentials(folder.path(), false);
        Self { cluster, authority, credentials, _folder: folder }
    }

    fn url(&self) -> String {
        self.cluster.url().replace("nats://", "tls://")
    }

    fn nats(&self) -> Nats {
        let options = NatsOptions::new(self.url())
            .credentials_file(&self.credentials)
            .ca_file(&self.authority.certificate)
            .create_stream(StreamOptions::default().replicas(3));
        Nats::with_options(options).unwrap()
    }

    async fn stream(&self) -> Option<stream::Stream> {
        let options = ConnectOptions::with_credentials_file(&self.credentials).await.unwrap();
        let options = options.add_root_certificates(self.authority.certificate.clone());
        let client = options.connect(Target::at(self.url()).addresses()).await.ok()?;
        jetstream::new(client).get_stream("EVENTS").await.ok()
    }

    /// Waits until the stream has a leader and all its copies. Returns the number of the leader.
    async fn leader(&self) -> usize {
        eventually(async || {
            let cluster = self.stream().await?.cached_info().cluster.clone()?;
            let current = cluster.replicas.iter().filter(|copy| copy.current).count();
            self.cluster.number_of(&cluster.leader?).filter(|_| current == SERVERS - 1)
        })
        .await
    }

    /// The messages of the stream, without their later copies.
    async fn messages(&self) -> Vec<Copy> {
        let stream = eventually(async || self.stream().await).await;
        let (mut seen, mut messages) = (HashSet::new(), Vec::new());
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let headers = stream.get_raw_message(sequence).await.unwrap().headers;
            let header = |name| headers.get(name).map(|value| value.as_str().to_owned());
            let id = header("ce-id").unwrap();
            if seen.insert(id.clone()) {
                messages.push((
                    id,
                    header("ce-partitionkey"),
                    header("ce-sequence").unwrap().parse().unwrap(),
                ));
            }
        }
        messages
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_behind_tls_and_credentials_loses_nothing_with_its_leader() {
    let (mut guarded, store) = (Guarded::start().await, database::postgres().await);
    let nats = guarded.nats();
    // The servers have to find each other first.
    let options = StreamOptions::default().replicas(3);
    eventually(async || nats.provision(&options).await.ok()).await;
    let running = Running::run(Relay::new((*store).clone(), nats.clone()));
    publish(&store, 0..MESSAGES).await;
    running.published(u64::from(MESSAGES)).await;

    let leader = guarded.leader().await;
    guarded.cluster.server(leader).kill().unwrap();
    publish(&store, MESSAGES..5 * MESSAGES).await;
    running.published(u64::from(5 * MESSAGES)).await;
    guarded.cluster.server(leader).restart().unwrap();
    guarded.leader().await;
    let consumers = Consumers::start(&store, nats).await;
    publish(&store, 5 * MESSAGES..6 * MESSAGES).await;
    running.published(u64::from(6 * MESSAGES)).await;
    consumers.handled(6 * MESSAGES).await;
    consumers.stop().await;
    running.stop().await;
    assert_whole_and_ordered(&guarded.messages().await, 6 * MESSAGES as usize);
}
