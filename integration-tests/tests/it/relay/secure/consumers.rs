//! Consumers show the server what relays show it, over the connection for deliveries too.
use super::*;
use crate::relay::faults::cluster::consumers::Consumers;

/// A relay and a consumer of each order reach the server with these options.
async fn consumes(options: NatsOptions) {
    let store = database::postgres().await;
    let nats = Nats::with_options(options.create_stream(StreamOptions::default())).unwrap();
    let running = Running::run(Relay::new((*store).clone(), nats.clone()));
    publish(&store, 0..MESSAGES).await;
    running.published(u64::from(MESSAGES)).await;
    let consumers = Consumers::start(&store, nats).await;
    consumers.handled(MESSAGES).await;
    consumers.stop().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_show_a_client_certificate_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let ours = Authority::new(dir, "ours");
    let (pair, client) = (ours.issue(dir, "server"), ours.issue(dir, "client"));
    let server = nats([format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        pair.certificate, pair.key, ours.certificate
    )]);
    let options = NatsOptions::new(format!("tls://127.0.0.1:{}", server.port()));
    consumes(options.ca_file(&ours.certificate).client_certificate(&client.certificate, &client.key)).await;
}

/// The server asks for TLS, the URL does not.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_use_tls_where_the_server_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path(), "ours");
    let pair = ours.issue(folder.path(), "server");
    let server = nats([format!("tls {{ cert_file: {:?}, key_file: {:?} }}", pair.certificate, pair.key)]);
    let options = NatsOptions::new(format!("nats://127.0.0.1:{}", server.port()));
    consumes(options.ca_file(&ours.certificate)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_log_in_with_a_token_a_password_or_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let server = nats(["authorization { token: \"the secret\" }".to_owned()]);
    let file = folder.path().join("token");
    std::fs::write(&file, "the secret\n").unwrap();
    consumes(NatsOptions::new(server.url()).token_file(&file)).await;
    let server = nats(["authorization { user: me, password: \"p@ss\" }".to_owned()]);
    consumes(NatsOptions::new(server.url().replace("nats://", "nats://me:p%40ss@"))).await;
    let operator = Operator::new();
    let server = nats(operator.lines.clone());
    let credentials = operator.credentials(folder.path(), false);
    consumes(NatsOptions::new(server.url()).credentials_file(&credentials)).await;
}
