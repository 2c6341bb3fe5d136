//! The example `payments`, asked as its page says.
use crate::consumer::support::{TestDb, World, cases, soon};
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
    let app = payments::app((*world).clone()).await.unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let script = PAGE.split("```sh\n").find(|block| block.starts_with(URL)).unwrap();
    let script = script.split_once("```").unwrap().0.replace(URL, &url);
    let ask = async || {
        let asking = tokio::process::Command::new("sh").args(["-euc", &script]).kill_on_drop(true).output();
        let printed = soon(asking).await.unwrap();
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
        [(201, true), (201, true), (409, false), (400, false), (201, true), (201, true)],
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
        [(201, true), (201, true), (409, false), (400, false), (409, false), (409, false)],
        "{printed}"
    );
    assert_eq!(later[0].2, answers[0].2);
    serving.abort();
    for table in ["payments", "refunds"] {
        assert_eq!(world.number(format!("SELECT count(*) FROM {table}")).await, 1);
    }
    assert_eq!(world.rows("outbox").await, 2);
}

cases! { both: [the_page_says_what_happens] }
