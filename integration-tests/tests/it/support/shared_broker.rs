//! A NATS server that several parties share: the users of the book, a neighbour that may publish types of its
//! own and hear orders, and a spy that may use the inboxes of clients, as NATS users are often allowed to.
use twinbox::nats::{Nats, NatsOptions, StreamOptions};
use twinbox_testkit::servers::{NatsOptions as ServerOptions, NatsServer};

const PAGE: &str = include_str!("../../../../crates/twinbox-cli/BROKER.md");
const STRANGERS: &str = r#"
    { user: admin, password: secret }
    { user: reviews, password: secret, permissions: {
        publish: ["events.*.reviews.>"], subscribe: ["events.*.orders.>", "_INBOX.>"] } }
    { user: spy, password: secret, permissions: { publish: ["_INBOX.>"], subscribe: ["_INBOX.>"] } }
"#;

/// The block of the page.
pub(crate) fn documented_users() -> &'static str {
    PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has a block")
}

pub(crate) struct SharedBroker {
    pub(crate) server: NatsServer,
}

impl SharedBroker {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// With another line in the configuration of the server.
    pub(crate) fn start_with(line: &str) -> Self {
        let with_password = |line: &str| match line.split_once("password: $") {
            Some((before, _)) => format!("{before}password: secret\n"),
            None => format!("{line}\n"),
        };
        let users = String::from_iter(documented_users().lines().map(with_password));
        let all = users.replacen("  users: [\n", &format!("  users: [\n{STRANGERS}"), 1);
        assert!(all.contains("spy"), "{all}");
        Self { server: NatsServer::start_with(ServerOptions::default().line(all).line(line)).unwrap() }
    }

    /// With the stream that the book's users use.
    pub(crate) async fn with_stream(stream: &StreamOptions) -> Self {
        let broker = Self::start();
        broker.nats("admin").provision(stream).await.unwrap();
        broker
    }

    pub(crate) fn url(&self, user: &str) -> String {
        self.server.url().replace("nats://", &format!("nats://{user}:secret@"))
    }

    /// As a user of the book, with its own inbox prefix.
    pub(crate) fn options(&self, user: &str) -> NatsOptions {
        NatsOptions::new(self.url(user)).inbox_prefix(format!("_INBOX_{user}"))
    }

    pub(crate) fn nats(&self, user: &str) -> Nats {
        Nats::with_options(self.options(user)).unwrap()
    }

    pub(crate) async fn client(&self, user: &str) -> async_nats::Client {
        self.client_with(user, async_nats::ConnectOptions::new()).await
    }

    /// The client library takes no login from a URL.
    pub(crate) async fn client_with(
        &self,
        user: &str,
        options: async_nats::ConnectOptions,
    ) -> async_nats::Client {
        let options = options.user_and_password(user.to_owned(), "secret".to_owned());
        options.connect(self.server.url()).await.unwrap()
    }
}
