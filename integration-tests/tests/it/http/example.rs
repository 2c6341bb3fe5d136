//! The example `payments`, asked as its page says.
use crate::support::{
    refunds::{post, send},
    stores::{TestDb, World},
    wait::in_time,
};
use sqlx::AssertSqlSafe;
use std::process::Command;
use tokio::net::TcpListener;
use twinbox_testkit::skipped;

const PAGE: &str = include_str!("../../../../examples/payments/README.md");
const URL: &str = "url=http://127.0.0.1:8080\n";

/// What `curl` printed for each request: its status, `Idempotency-Status`, and body.
type Answer<'p> = (u16, Option<&'p str>, &'p str);

fn answers(printed: &str) -> Vec<Answer<'_>> {
    let answers = printed.split("HTTP/1.1 ").skip(1);
    answers
        .map(|answer| {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let status = head[..3].parse().unwrap();
            (status, head.lines().find_map(|line| line.strip_prefix("idempotency-status: ")), body.trim())
        })
        .collect()
}

/// R37, R63: what the page says is what happens
async fn the_page_says_what_happens<DB: TestDb>() {
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("the script of the example payments needs curl");
    }
    let world = World::<DB>::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("url=http://{}\n", listener.local_addr().unwrap());
    let app = payments::app(world.owner().clone()).await.unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let script = PAGE.split("```sh\n").find(|block| block.starts_with(URL)).unwrap();
    let script = script.split_once("```").unwrap().0.replace(URL, &url);
    let ask = async || {
        let asking = tokio::process::Command::new("sh").args(["-euc", &script]).kill_on_drop(true).output();
        let printed = in_time(asking).await.unwrap();
        assert!(printed.status.success(), "{printed:?}");
        String::from_utf8(printed.stdout).unwrap()
    };
    let printed = ask().await;
    let answers = answers(&printed);
    let told = |answers: &[Answer<'_>]| {
        Vec::from_iter(answers.iter().map(|(status, told, _)| (*status, told.is_some())))
    };
    assert_eq!(
        told(&answers),
        [(201, true), (201, true), (409, false), (400, false), (201, true), (201, true), (404, false)],
        "{printed}"
    );
    assert_eq!(
        [answers[0].1, answers[1].1, answers[4].1, answers[5].1].map(Option::unwrap),
        ["stored", "replayed", "stored", "replayed"]
    );
    assert_eq!((answers[0].2, answers[4].2), (answers[1].2, answers[5].2));
    for (refused, code) in
        [(2, "CONFLICT.idempotency.payload_mismatch"), (3, "VALIDATION.idempotency.missing_key")]
    {
        assert!(answers[refused].2.contains(code), "{printed}");
        assert!(PAGE.contains(code) && payments::OPENAPI.contains(code));
    }
    // When the keys are forgotten, what was made is still there, and is not made again.
    let forget = format!("DELETE FROM {}", DB::table_of("idempotency_keys"));
    sqlx::raw_sql(AssertSqlSafe(forget)).execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
    let printed = ask().await;
    let later = self::answers(&printed);
    assert_eq!(
        told(&later),
        [(201, true), (201, true), (409, false), (400, false), (409, false), (409, false), (404, false)],
        "{printed}"
    );
    assert_eq!(later[0].2, answers[0].2);
    serving.abort();
    for table in ["payments", "refunds"] {
        assert_eq!(world.number(format!("SELECT count(*) FROM {table}")).await, 1);
    }
    assert_eq!(world.rows("outbox").await, 2);
}

/// Before and after it was given back: whoever has not paid gets nothing, and learns nothing.
async fn nobody_gets_anothers_money_back<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let app = payments::app(world.owner().clone()).await.unwrap();
    let ask = async |token: &str, path: &str, key: &str, body: String| {
        let request = post(path, key).header("authorization", format!("Bearer {token}"));
        send(&app, request.body(body.into()).unwrap()).await
    };
    let paid = ask("alice-1", "/payments", "a", r#"{"cents":4200,"currency":"INR"}"#.to_owned()).await;
    assert_eq!(paid.status, 201);
    let refund = format!("{{\"payment_id\":{}}}", paid.json()["payment_id"]);
    let nothing =
        ask("bob-1", "/refunds", "b", format!("{{\"payment_id\":\"{}\"}}", uuid::Uuid::nil())).await;
    let others = ask("bob-1", "/refunds", "b", refund.clone()).await;
    assert_eq!((others.status.as_u16(), &others.body), (404, &nothing.body));
    assert_eq!(
        ask("alice-2", "/refunds", "a", refund.clone()).await.status,
        201,
        "she has another token by now"
    );
    assert_eq!(ask("bob-1", "/refunds", "b", refund).await.body, nothing.body);
    assert_eq!(world.number("SELECT count(*) FROM refunds").await, 1);
}

// The statements of the example number their binds, which MySQL does not.
crate::support::cases::cases_on! {
    [postgres: Postgres, sqlite: Sqlite],
    [the_page_says_what_happens, nobody_gets_anothers_money_back]
}
