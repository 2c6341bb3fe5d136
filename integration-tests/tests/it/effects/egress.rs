//! Requests to strangers' URLs reach no address inside the network, by whichever way.
use crate::support::wait::in_time;
use axum::{Router, body::Bytes, http::Request, response::Redirect, routing::post};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::{
    collections::VecDeque,
    env,
    net::{IpAddr, SocketAddr},
    process::Stdio,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, process::Command};
use tower::ServiceExt as _;
use twinbox::effects::{
    ReqwestService, Response, SendError,
    webhook::{Egress, GuardedService},
};
use twinbox_testkit::vendor::FakeVendor;

fn post_to(url: &str) -> Request<Bytes> {
    Request::post(url).body(Bytes::from_static(b"{}")).unwrap()
}

async fn send(service: &GuardedService, url: &str) -> Result<Response, SendError> {
    in_time(service.clone().oneshot(post_to(url))).await
}

/// All causes of an error, as text.
fn causes(error: &SendError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

fn port(receiver: &FakeVendor) -> u16 {
    receiver.url().rsplit_once(':').unwrap().1.parse().unwrap()
}

/// Only this address is allowed. It stands for a public one.
fn only_one(port: u16) -> Egress {
    Egress::new().allow_http().allow_port(port).allow_network("127.0.0.1".parse().unwrap())
}

/// Answers with the next list, and counts the questions.
#[derive(Clone)]
struct Scripted(Arc<Mutex<VecDeque<Vec<&'static str>>>>);

impl Scripted {
    fn new(answers: impl IntoIterator<Item = Vec<&'static str>>) -> Self {
        Self(Arc::new(Mutex::new(answers.into_iter().collect())))
    }

    fn left(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Resolve for Scripted {
    fn resolve(&self, _: Name) -> Resolving {
        let answer = self.0.lock().unwrap().pop_front().expect("one question for each answer");
        let addresses = answer.into_iter().map(|address| {
            let address: IpAddr = address.parse().unwrap();
            // Another port than the one of the URL, which must not count.
            SocketAddr::new(address, 1)
        });
        let addresses = Vec::from_iter(addresses);
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
    }
}

/// A connection for each request, so that each one asks for the address.
fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().pool_max_idle_per_host(0)
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_at_each_connection() {
    let receiver = FakeVendor::start().await.unwrap();
    let resolver = Scripted::new([
        vec!["127.0.0.1"],
        vec!["127.0.0.2"],
        vec!["10.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "169.254.169.254"],
        vec!["127.0.0.2", "127.0.0.1", "10.0.0.1"],
        vec![],
    ]);
    let port = port(&receiver);
    let service = GuardedService::with_resolver(builder(), only_one(port), resolver.clone()).unwrap();
    let url = format!("http://hooks.example:{port}/");
    for (left, expected) in [
        (4, Ok(200)),
        (3, Err("127.0.0.2 of the endpoint is not allowed: loopback")),
        (2, Err("169.254.169.254 of the endpoint is not allowed: link-local")),
        (1, Ok(200)),
        (0, Err("no address")),
    ] {
        let got = send(&service, &url).await;
        // One question for each connection: nothing else is looked up and then connected to.
        assert_eq!(resolver.left(), left);
        match (got, expected) {
            (Ok(response), Ok(status)) => assert_eq!(response.status, status),
            (Err(error), Err(says)) => assert!(causes(&error).contains(says), "{}", causes(&error)),
            (got, expected) => panic!("{got:?}, and not {expected:?}"),
        }
    }
    assert_eq!(receiver.calls().len(), 2, "only the allowed address was connected to");
}

#[tokio::test]
async fn a_literal_address_and_a_name_of_this_machine_are_refused() {
    let inside = FakeVendor::start().await.unwrap();
    let port = port(&inside);
    let egress = Egress::new().allow_http().allow_port(port);
    let service = GuardedService::new(builder(), egress).unwrap();
    for host in ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "[::1]", "localhost"] {
        let error = send(&service, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert!(causes(&error).contains("not allowed"), "{host}: {}", causes(&error));
    }
    assert!(inside.calls().is_empty());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let inside = FakeVendor::start().await.unwrap();
    let location = inside.url();
    let router = Router::new().route("/", post(async move || Redirect::temporary(&location)));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let outside = listener.local_addr().unwrap();
    let serving = tokio::spawn(async { axum::serve(listener, router).await });
    let egress = only_one(outside.port()).allow_port(port(&inside));
    let service = GuardedService::new(builder(), egress).unwrap();
    let response = send(&service, &format!("http://{outside}/")).await.unwrap();
    assert_eq!(response.status, 307);
    assert!(inside.calls().is_empty());
    serving.abort();
}

/// Tells the child process where to send.
const TARGET: &str = "TWINBOX_TEST_TARGET";

/// The test runs itself as a child whose environment names a proxy. The child sends once with a client that
/// has no guard, to show that the proxy is in use.
#[tokio::test]
async fn a_proxy_of_the_environment_is_not_used() {
    if let Ok(target) = env::var(TARGET) {
        let port = target.rsplit_once(':').unwrap().1.parse().unwrap();
        let service = GuardedService::new(builder(), only_one(port)).unwrap();
        send(&service, &format!("{target}/guarded")).await.unwrap();
        let with_proxy = reqwest::Proxy::all(env::var("HTTP_PROXY").unwrap()).unwrap();
        let service = GuardedService::new(builder().proxy(with_proxy), only_one(port)).unwrap();
        send(&service, &format!("{target}/guarded")).await.unwrap();
        let plain = ReqwestService::new(builder()).unwrap();
        plain.oneshot(post_to(&format!("{target}/plain"))).await.unwrap();
        return;
    }
    let (proxy, target) = (FakeVendor::start().await.unwrap(), FakeVendor::start().await.unwrap());
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "effects::egress::a_proxy_of_the_environment_is_not_used"]);
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, proxy.url());
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy").env(TARGET, target.url());
    let output = child.stdout(Stdio::piped()).kill_on_drop(true).output();
    let output = in_time(output).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let paths = |receiver: &FakeVendor| Vec::from_iter(receiver.calls().into_iter().map(|call| call.path));
    assert_eq!(paths(&target), ["/guarded", "/guarded"]);
    let [proxied] = &paths(&proxy)[..] else { panic!("{:?}", paths(&proxy)) };
    assert!(proxied.ends_with("/plain"), "{proxied}");
}
