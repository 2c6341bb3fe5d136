//! How Twinbox's own programs connect to Postgres.
use sqlx::postgres::PgConnectOptions;

/// Functions and operators are those of Postgres alone. In the usual path, whoever may create in `public`
/// could put a function of his own before one that is called with another type, and it would run with the
/// rights of the program.
const SEARCH_PATH: (&str, &str) = ("search_path", "pg_catalog,pg_temp");

/// Returns the options for the URL of a program that runs no SQL of an application. Behind a pooler in
/// transaction mode sessions have the search path of their role: `ALTER ROLE … SET search_path` sets it.
///
/// # Errors
/// The URL cannot be parsed.
pub fn program_options(url: &str, has_pooler: bool) -> sqlx::Result<PgConnectOptions> {
    let options: PgConnectOptions = url.parse()?;
    // PgBouncer refuses startup parameters that it does not know.
    Ok(if has_pooler { options.extra_float_digits(None) } else { options.options([SEARCH_PATH]) })
}
