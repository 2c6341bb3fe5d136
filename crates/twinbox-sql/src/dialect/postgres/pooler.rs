//! Detecting a pooler, and statements that it would break.
use crate::{
    Error, ErrorKind,
    catalog::Catalog,
    lent::Lent,
    statement::{STATEMENT_MAX, in_time, raw},
};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, Row as _};

/// How often two connections are compared. A pooler hands out the server connection that was used last,
/// unless another client is quicker.
const LOOKS: usize = 3;

/// Whether a pooler between here and the server shares server connections between transactions.
pub(super) async fn is_pooled(pool: &PgPool) -> Result<bool, Error> {
    let mut ours = Lent::from(pool.acquire().await?);
    // Not from the pool, which may have no other. Without a second connection nothing is found out.
    let options = pool.connect_options();
    let other = in_time(STATEMENT_MAX, PgConnection::connect_with(&options)).await;
    let Ok(mut other) = other else { return Ok(false) };
    let mut seen = None;
    for _ in 0..LOOKS {
        let mine = backend(&mut ours).await?;
        if seen.replace(mine).is_some_and(|before| before != mine) || backend(&mut other).await? == mine {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn backend(conn: &mut PgConnection) -> Result<i32, Error> {
    // Without binds and without a name: right behind a pooler too.
    Ok(raw::<Postgres>("SELECT pg_backend_pid() AS pid").fetch_one(conn).await?.try_get("pid")?)
}

/// Refuses a handler that gave names to statements behind a pooler: a name may mean another statement on the
/// next server connection.
pub(super) async fn refuse_named(conn: &mut PgConnection, catalog: &Catalog) -> Result<(), Error> {
    if catalog.is_named || conn.cached_statements_size() == 0 {
        return Ok(());
    }
    conn.clear_cached_statements().await?;
    Err(Error::new(
        ErrorKind::Configuration,
        "behind a pooler a statement must have no name: say `.persistent(false)` to each of the handler",
    ))
}
