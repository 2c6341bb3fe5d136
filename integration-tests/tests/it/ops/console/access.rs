//! Who may look, and who may change something: requests that a browser of ours would not send.
use super::filled::filled;
use crate::support::{console::Console, stores::World, tool::Tool};
use reqwest::{Client, Method, Response, StatusCode, redirect::Policy};
use sqlx::Postgres;
use tempfile::NamedTempFile;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use twinbox::ops::Ops;

const ADA: &str = "adaadaadaadaadaadaadaadaadaadaada";
const EVE: &str = "eveeveeveeveeveeveeveeveeveeveeve";
/// All verbs of changes, with the fields that they need.
const CHANGES: [(&str, &str); 19] = [
    ("redrive", "consumer=billing.invoice"),
    ("discard", "consumer=billing.invoice"),
    ("cancel-bulk", "id=1"),
    ("pause-destination", "name=nats"),
    ("resume-destination", "name=nats"),
    ("pause-consumer", "name=billing.invoice"),
    ("resume-consumer", "name=billing.invoice"),
    ("pause-vendor", "name=mail"),
    ("resume-vendor", "name=mail"),
    ("unblock-key", "destination=nats&key=customer-1"),
    ("skip-message", "destination=nats&message=order-1"),
    ("retry-parked", "consumer=billing.invoice"),
    ("resend", "destination=nats&since=1h"),
    ("reprocess", "consumer=billing.invoice&destination=nats&since=1h"),
    ("pause-replay", "id=1"),
    ("resume-replay", "id=1"),
    ("cancel-replay", "id=1"),
    ("retry-effect", "id=2"),
    ("resolve-effect", "id=1&outcome=applied"),
];

fn client() -> Client {
    Client::builder().redirect(Policy::none()).build().unwrap()
}

fn tokens() -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("operator ada {ADA}\nviewer eve {EVE}\n")).unwrap();
    file
}

/// Sends a form as a page of the console would.
async fn post(console: &Console, path: &str, cookie: &str, form: String) -> Response {
    let request = client().post(console.at(path)).header("origin", &console.url).header("cookie", cookie);
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
    request.send().await.unwrap()
}

/// Logs in, and returns the cookie.
async fn log_in(console: &Console, token: &str) -> String {
    let response = post(console, "/login", "", format!("token={token}&next=%2Faudit")).await;
    assert_eq!(
        (response.status(), &response.headers()["location"]),
        (StatusCode::SEE_OTHER, &"/audit".parse().unwrap())
    );
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

/// The tokens in the form of a page, as a part of a form.
async fn form_of(console: &Console, path: &str, cookie: &str) -> Option<String> {
    let page = client().get(console.at(path)).header("cookie", cookie).send().await.unwrap();
    let text = page.text().await.unwrap();
    let value = |name: &str| {
        let (_, rest) = text.split_once(&format!("name=\"{name}\" value=\""))?;
        Some(rest.split('"').next().unwrap().to_owned())
    };
    Some(format!("csrf={}&form={}", value("csrf")?, value("form")?))
}

/// What a change would leave behind.
async fn audited(world: &World<Postgres>) -> (i64, i64) {
    (world.rows("audit").await, world.rows("bulk_actions").await)
}

/// I11: neither a viewer, nor somebody at a console that only shows, by any request.
#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_changes_nothing_by_any_request() {
    let world = filled().await;
    let (before, file) = (audited(&world).await, tokens());
    let file = file.path().to_str().unwrap();
    for (arguments, token, why) in [
        (vec!["--allow-changes", "--tokens", file], EVE, "You may look, and change nothing."),
        (vec!["--tokens", file], ADA, "This console only shows"),
    ] {
        let console = Console::start(&Tool::of(&world), &arguments).await;
        let cookie = log_in(&console, token).await;
        for (verb, fields) in CHANGES {
            let path = format!("/changes/{verb}");
            let preview = client().get(console.at(&format!("{path}?{fields}"))).header("cookie", &cookie);
            let status = preview.send().await.unwrap().status();
            assert!(!status.is_server_error(), "{verb}: {status}");
            assert_eq!(form_of(&console, &format!("{path}?{fields}"), &cookie).await, None, "{verb}");
            let refused = post(&console, &path, &cookie, format!("{fields}&reason=x&form=0&csrf=0")).await;
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{verb}");
            // For want of the role, and not of a token.
            let text = refused.text().await.unwrap();
            assert!(text.contains(why), "{verb}: {text}");
            for method in [Method::PUT, Method::DELETE, Method::PATCH] {
                let request = client().request(method, console.at(&path)).header("origin", &console.url);
                let status = request.header("cookie", &cookie).send().await.unwrap().status();
                assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{verb}");
            }
        }
        console.stop().await;
    }
    assert_eq!(audited(&world).await, before);
}

/// A form of another site, of another session, and one whose token was guessed.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_site_changes_nothing() {
    let world = filled().await;
    let (before, file) = (audited(&world).await, tokens());
    let arguments = ["--allow-changes", "--tokens", file.path().to_str().unwrap()];
    let console = Console::start(&Tool::of(&world), &arguments).await;
    let (cookie, other) = (log_in(&console, ADA).await, log_in(&console, ADA).await);
    let path = "/changes/pause-consumer?name=billing.invoice";
    let good = form_of(&console, path, &cookie).await.unwrap();
    let of_other = form_of(&console, path, &other).await.unwrap();
    let form = |tokens: &str| format!("name=billing.invoice&reason=x&{tokens}");
    for (origin, fetched, token) in [
        (Some("https://evil.example"), None, &good),
        (Some("null"), None, &good),
        (None, None, &good),
        (Some(&*console.url), Some("cross-site"), &good),
        (Some(&*console.url), Some("same-site"), &good),
        (Some(&*console.url), None, &of_other),
        (Some(&*console.url), None, &format!("csrf={}&form=0", "0".repeat(64))),
        (Some(&*console.url), None, &good.split('&').next().unwrap().to_owned()),
        (Some(&*console.url), None, &String::new()),
    ] {
        let mut request = client().post(console.at("/changes/pause-consumer")).header("cookie", &cookie);
        request = request.header("content-type", "application/x-www-form-urlencoded").body(form(token));
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        if let Some(fetched) = fetched {
            request = request.header("sec-fetch-site", fetched);
        }
        let status = request.send().await.unwrap().status();
        assert_eq!(status, StatusCode::FORBIDDEN, "{origin:?} {fetched:?} {token}");
    }
    assert_eq!(audited(&world).await, before);
    let made = post(&console, "/changes/pause-consumer", &cookie, form(&good)).await;
    assert_eq!(made.status(), StatusCode::SEE_OTHER);
    let entry = &Ops::new(&*world).audit(1).await.unwrap()[0];
    assert_eq!((&*entry.operator, &*entry.command, entry.count), ("ada", "consumers pause", Some(1)));
    // A form that a browser sends again changes nothing.
    let resume = "/changes/resume-consumer";
    let tokens = form_of(&console, &format!("{resume}?name=billing.invoice"), &cookie).await.unwrap();
    assert_eq!(post(&console, resume, &cookie, form(&tokens)).await.status(), StatusCode::SEE_OTHER);
    let pause = post(&console, "/changes/pause-consumer", &cookie, form(&good)).await;
    assert_eq!(pause.status(), StatusCode::CONFLICT);
    assert_eq!(audited(&world).await.0, before.0 + 2);
    console.stop().await;
}

/// Nobody gets in without a token, guesses have to wait, and a session ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_in_and_guesses_wait() {
    let (world, file) = (World::<Postgres>::new().await, tokens());
    let arguments = ["--tokens", file.path().to_str().unwrap(), "--host", "ops.example.org"];
    let console = Console::start(&Tool::of(&world), &arguments).await;
    for path in ["/", "/audit?x=1", "/dead-letters/one?id=1"] {
        let refused = client().get(console.at(path)).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::SEE_OTHER);
        let to = refused.headers()["location"].to_str().unwrap().to_owned();
        assert!(to.starts_with("/login?next=%2F"), "{to}");
    }
    let part = client().get(console.at("/live")).header("hx-request", "true").send().await.unwrap();
    assert_eq!(
        (part.status(), &part.headers()["hx-redirect"]),
        (StatusCode::UNAUTHORIZED, &"/login".parse().unwrap())
    );
    let cookie = log_in(&console, EVE).await;
    // A browser elsewhere, behind a proxy on this machine.
    let request = client().post(console.at("/login")).header("origin", "https://ops.example.org");
    let request = request.header("host", "ops.example.org").body(format!("token={EVE}"));
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let cookie_of_proxy = request.send().await.unwrap().headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie_of_proxy.ends_with("; Secure"), "{cookie_of_proxy}");
    let get = async |cookie: &str| {
        client().get(console.at("/audit")).header("cookie", cookie).send().await.unwrap().status()
    };
    assert_eq!(get(&cookie).await, StatusCode::OK);
    assert_eq!(get("twinbox-session=0000").await, StatusCode::SEE_OTHER);
    assert_eq!(post(&console, "/logout", &cookie, String::new()).await.status(), StatusCode::SEE_OTHER);
    assert_eq!(get(&cookie).await, StatusCode::SEE_OTHER);
    // The page does not lead away from the console.
    for next in ["https://evil.example", "//evil.example", "/\\evil.example"] {
        let next: String = next.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let to = post(&console, "/login", "", format!("token={EVE}&next={next}")).await;
        assert_eq!(to.headers()["location"], "/");
    }
    let mut statuses = Vec::new();
    for _ in 0..11 {
        statuses.push(post(&console, "/login", "", "token=guess".to_owned()).await.status());
    }
    assert_eq!(statuses.iter().filter(|status| **status == StatusCode::OK).count(), 10);
    assert_eq!(statuses[10], StatusCode::TOO_MANY_REQUESTS);
    console.stop().await;
}

/// Half a request, from somebody who never sends the rest.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_does_not_keep_the_console_from_stopping() {
    let world = World::<Postgres>::new().await;
    let console = Console::start(&Tool::of(&world), &[]).await;
    let mut connection = TcpStream::connect(console.url.replace("http://", "")).await.unwrap();
    connection.write_all(b"GET /audit HTTP/1.1\r\nhost: local").await.unwrap();
    assert_eq!(client().get(console.at("/audit")).send().await.unwrap().status(), StatusCode::OK);
    console.stop().await;
}

/// A proxy names who asks. Others cannot.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_names_who_asks() {
    let world = filled().await;
    let start = async |proxy: &'static str| {
        let arguments = ["--allow-changes", "--user-header", "x-user", "--proxy", proxy, "--operator", "ada"];
        Console::start(&Tool::of(&world), &arguments).await
    };
    let console = start("127.0.0.1").await;
    let get = async |console: &Console, user: Option<&str>| {
        let request = client().get(console.at("/changes/pause-consumer?name=billing.invoice"));
        let request = if let Some(user) = user { request.header("x-user", user) } else { request };
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    assert_eq!(get(&console, None).await.0, StatusCode::FORBIDDEN);
    let (status, page) = get(&console, Some("ada")).await;
    assert!(status == StatusCode::OK && page.contains("ada, may change"), "{page}");
    let (status, page) = get(&console, Some("bob")).await;
    assert!(status == StatusCode::OK && page.contains("bob, read only") && !page.contains("csrf"), "{page}");
    console.stop().await;
    let elsewhere = start("10.0.0.7").await;
    assert_eq!(get(&elsewhere, Some("ada")).await.0, StatusCode::FORBIDDEN);
    elsewhere.stop().await;
}

/// Other names for this machine, framing, files of the server, and large forms.
#[tokio::test(flavor = "multi_thread")]
async fn other_names_frames_and_paths_are_refused() {
    let world = World::<Postgres>::new().await;
    let console = Console::start(&Tool::of(&world), &["--host", "ops.example.org"]).await;
    let port = console.url.rsplit(':').next().unwrap().to_owned();
    for (host, status) in [
        (format!("127.0.0.1:{port}"), StatusCode::OK),
        ("ops.example.org".to_owned(), StatusCode::OK),
        ("evil.example".to_owned(), StatusCode::MISDIRECTED_REQUEST),
        (format!("127.0.0.1.evil.example:{port}"), StatusCode::MISDIRECTED_REQUEST),
    ] {
        let answered = client().get(console.at("/audit")).header("host", &host).send().await.unwrap();
        assert_eq!(answered.status(), status, "{host}");
        let policy = answered.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answered.headers()["x-frame-options"], "DENY");
        assert_eq!(answered.headers()["x-content-type-options"], "nosniff");
        assert_eq!(answered.headers()["cache-control"], "no-store");
    }
    for path in
        ["/assets/..%2f..%2fCargo.toml", "/assets/%2e%2e/%2e%2e/etc/passwd", "/assets/x", "/etc/passwd"]
    {
        let answered = client().get(console.at(path)).send().await.unwrap();
        assert_eq!(answered.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let large = post(&console, "/login", "", format!("token={}", "a".repeat(100_000))).await;
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
    console.stop().await;
    // Beyond this machine somebody has to log in.
    let refused = Tool::of(&world).ends(2, &["console", "--listen", "0.0.0.0:0"]).await;
    assert!(refused.contains("everybody would be let in"), "{refused}");
    let bad = NamedTempFile::new().unwrap();
    std::fs::write(bad.path(), "operator ada short").unwrap();
    let refused = Tool::of(&world).ends(2, &["console", "--tokens", bad.path().to_str().unwrap()]).await;
    assert!(refused.contains("line 1 of the token file") && !refused.contains("short\n"), "{refused}");
}
