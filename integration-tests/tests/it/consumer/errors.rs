//! `?` takes every error and keeps the database's code.
use crate::support::{
    cases::cases,
    databases::Postgres,
    stores::{TestDb, World, effect},
};
use twinbox::{HandlerError, HandlerResult};

#[derive(Debug)]
struct Wrapped(sqlx::Error);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stock could not be reserved")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn question_mark<E>(error: E) -> HandlerError
where
    HandlerError: From<E>,
{
    let run = || -> HandlerResult { Err(error)? };
    run().unwrap_err()
}

/// What `?` makes of a database error, however it is wrapped.
async fn wrapped<DB: TestDb>(make: impl AsyncFn() -> sqlx::Error) -> Vec<HandlerError> {
    let store: twinbox::Error = make().await.into();
    let context = anyhow::Error::new(make().await).context("while reserving");
    vec![
        question_mark(make().await),
        question_mark(Wrapped(make().await)),
        question_mark(store),
        question_mark(context),
        question_mark(anyhow::Error::new(make().await)),
    ]
}

async fn contention_survives_wrapping() {
    let world = World::<Postgres>::new().await;
    for code in ["40001", "40P01", "55P03"] {
        let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$");
        let raise = async || {
            sqlx::raw_sql(sqlx::AssertSqlSafe(raise.clone())).execute(world.pool()).await.unwrap_err()
        };
        for error in wrapped::<Postgres>(raise).await {
            assert!(error.is_contention() && !error.is_outage(), "{error:?}");
            assert_eq!(error.sqlstate(), Some(code));
        }
    }
    assert!(!question_mark("text").is_contention());
    assert!(!question_mark(String::from("text")).is_contention());
}

async fn a_unique_violation_survives_wrapping<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let conn = async || world.pool().acquire().await.unwrap();
    effect::<DB>(&mut *conn().await, 1).await.unwrap();
    let again = async || effect::<DB>(&mut *conn().await, 1).await.unwrap_err();
    for error in wrapped::<DB>(again).await {
        assert!(error.is_unique_violation() && !error.is_contention() && !error.is_outage(), "{error:?}");
    }
}

async fn an_outage_survives_wrapping<DB: TestDb>() {
    let world = World::<DB>::new().await;
    world.close().await;
    let away = async || twinbox::Store::<DB>::pool(&world).acquire().await.err().unwrap();
    for error in wrapped::<DB>(away).await {
        assert!(error.is_outage() && !error.is_contention(), "{error:?}");
    }
    assert!(!HandlerError::reject(away().await).is_outage(), "the handler knew better");
}

/// The whole chain on one line, for the record of the attempt.
async fn an_error_is_shown_with_its_causes<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    effect::<DB>(&mut tx, 1).await.unwrap();
    let error = question_mark(Wrapped(effect::<DB>(&mut tx, 1).await.unwrap_err()));
    let text = error.to_string().to_lowercase();
    assert!(
        text.starts_with("the stock could not be reserved: ")
            && (text.contains("unique") || text.contains("duplicate")),
        "{text}"
    );
}

cases! {
    all: [
        a_unique_violation_survives_wrapping,
        an_outage_survives_wrapping,
        an_error_is_shown_with_its_causes,
    ]
    postgres: [contention_survives_wrapping]
}
