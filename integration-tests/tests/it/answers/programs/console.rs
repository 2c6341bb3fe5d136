//! The console, and an operator who looks at its pages and changes something.
use super::Program;
use crate::support::{
    stores::{TestDb, World},
    wait::{Pause, pause},
};
use futures::future::{BoxFuture, join_all};
use reqwest::{Client, StatusCode, header::ORIGIN, redirect::Policy};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::net::TcpListener;
use twinbox::{CancellationToken, Store, ops::Ops};
use twinbox_console::{Access, Console as Pages};

const PAGES: [&str; 12] = [
    "/",
    "/live",
    "/dead-letters",
    "/dead-letters/list?consumer=tests.silence",
    "/messages?id=o-1",
    "/keys?key=4",
    "/consumers",
    "/consumers?name=tests.silence",
    "/replays",
    "/effects",
    "/bulk-actions",
    "/audit",
];
const FORM: &str = "application/x-www-form-urlencoded";
/// How long an operator waits before he asks again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub(in super::super) struct Console {
    /// Where the console of the process that runs is.
    url: Arc<Mutex<String>>,
    client: Client,
    done: Arc<Mutex<HashSet<i64>>>,
}

impl Console {
    /// Asks until there is an answer that is not for later. Returns the page.
    async fn look(&self, path: &str) -> String {
        loop {
            let url = self.url.lock().unwrap().clone();
            if let Ok(answer) = self.client.get(url + path).send().await {
                let status = answer.status();
                assert!(status.is_success() || status.is_server_error(), "{path}: {status}");
                if let (true, Ok(page)) = (status.is_success(), answer.text().await) {
                    return page;
                }
            }
            pause(Pause::Pace, AGAIN_AFTER).await;
        }
    }

    /// Makes a change until its answer is known.
    async fn change(&self, verb: &str) {
        loop {
            let page = self.look(&format!("/changes/{verb}?name=mail")).await;
            let value = |name: &str| {
                let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
                rest.split('"').next().unwrap().to_owned()
            };
            let form = format!("name=mail&reason=x&csrf={}&form={}", value("csrf"), value("form"));
            let url = self.url.lock().unwrap().clone();
            let sent = self.client.post(format!("{url}/changes/{verb}")).header(ORIGIN, url);
            let sent = sent.header("content-type", FORM).body(form).send().await;
            match sent.map(|answer| answer.status()) {
                // A change whose answer was lost may have been made.
                Ok(StatusCode::SEE_OTHER | StatusCode::CONFLICT) => return,
                // The token of a process that is gone is refused.
                Ok(status) => {
                    assert!(status.is_server_error() || status == StatusCode::FORBIDDEN, "{status}")
                }
                Err(_) => {}
            }
            pause(Pause::Pace, AGAIN_AFTER).await;
        }
    }
}

impl<DB: TestDb> Program<DB> for Console {
    const NAME: &str = "console";

    async fn new(_: &World<DB>) -> Self {
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        Self { url: Arc::default(), client, done: Arc::default() }
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let url = self.url.clone();
        Box::pin(async move {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            *url.lock().unwrap() = format!("http://{}", listener.local_addr().unwrap());
            let access = Access::loopback("ada").allow_changes(true);
            Pages::new(Ops::new(&store), "shop", access).serve(listener, stop).await.unwrap();
        })
    }

    async fn feed(&self, _: &World<DB>, n: i64) {
        let visitor = self.clone();
        tokio::spawn(async move {
            join_all(PAGES.map(|path| visitor.look(path))).await;
            visitor.change(["pause-vendor", "resume-vendor"][usize::from(n % 2 != 0)]).await;
            visitor.done.lock().unwrap().insert(n);
        });
    }

    async fn is_done(&self, _: &World<DB>, n: i64) -> bool {
        self.done.lock().unwrap().contains(&n)
    }
}
