//! A schema in the path of a session, in which somebody else made functions and operators. Postgres takes one
//! of these where it fits the types of a call better than its own. So each call of ours fits exactly.
use super::{LISTS, Repeats as _, SCRIPTS};
use crate::support::{
    databases::{PgConnection, Postgres},
    stores::World,
};
use sqlx::{AssertSqlSafe, Connection as _};
use std::collections::BTreeSet;

/// The types of arguments for which somebody else made functions and operators.
const TYPES: &str = "text name int2 int4 int8 numeric float8 bool bytea uuid timestamptz interval jsonb xid8";

/// A function that was chosen is a dependency of the probe. One that is called raises an error.
const BODY: &str = "AS 'BEGIN RAISE EXCEPTION ''somebody else''; END'";

/// The types of the binds, as the server finds them; of those that it does not, the first that is accepted.
pub(super) async fn types_of_binds(conn: &mut PgConnection, sql: &str) -> Vec<String> {
    let binds = (1..).take_while(|n| sql.contains(&format!("${n}"))).count();
    let known = ["", "bigint", "text", "uuid"];
    for n in 0..known.len().pow(u32::try_from(binds).unwrap().min(6)) {
        let digit = |place: u32| known[n / known.len().pow(place) % known.len()];
        let types =
            (0..).take(binds).map(|place| if digit(place).is_empty() { "unknown" } else { digit(place) });
        let types = Vec::from_iter(types).join(", ");
        let types = if binds == 0 { String::new() } else { format!("({types})") };
        let mut tx = conn.begin().await.unwrap();
        let prepare = AssertSqlSafe(format!("PREPARE probe {types} AS {sql}"));
        if sqlx::raw_sql(prepare).execute(&mut *tx).await.is_ok() {
            let types = "SELECT unnest(parameter_types)::text
                FROM pg_prepared_statements
                WHERE name = 'probe'";
            let types = sqlx::query_scalar(types).fetch_all(&mut *tx).await.unwrap();
            sqlx::raw_sql("DEALLOCATE probe").execute(&mut *tx).await.unwrap();
            tx.rollback().await.unwrap();
            return types;
        }
        tx.rollback().await.unwrap();
    }
    panic!("no types fit the binds of {sql}");
}

/// Makes a function of each name with each pair of types, and of each name with more arguments one for each
/// type in each place; and each operator.
async fn make_overloads(conn: &mut PgConnection, functions: &BTreeSet<String>, operators: &BTreeSet<String>) {
    let list = |names: &BTreeSet<String>| {
        let quoted = names.iter().map(|name| format!("'{name}'"));
        Vec::from_iter(quoted).join(", ")
    };
    let (functions, operators) = (list(functions), list(operators));
    let make = format!(
        "SET check_function_bodies = off;
        CREATE SCHEMA hostile;
        CREATE SCHEMA probes;
        DO $do$
        DECLARE
            types text[] := string_to_array('{TYPES}', ' ');
            made text;
        BEGIN
            FOR made IN
                SELECT format('CREATE FUNCTION hostile.%I(%s) RETURNS text LANGUAGE plpgsql {body}',
                    name, arguments)
                FROM (
                    SELECT DISTINCT p.proname AS name, a AS arguments
                    FROM pg_proc p, unnest(types) a
                    WHERE p.proname IN ({functions}) AND p.pronargs = 1
                    UNION
                    SELECT DISTINCT p.proname, a || ', ' || b
                    FROM pg_proc p, unnest(types) a, unnest(types) b
                    WHERE p.proname IN ({functions}) AND p.pronargs = 2
                    UNION
                    SELECT DISTINCT p.proname, (
                        SELECT string_agg(
                            format_type(CASE WHEN nth = place THEN a::regtype::oid ELSE t END, NULL),
                            ', ' ORDER BY nth)
                        FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY x (t, nth))
                    FROM pg_proc p, unnest(types) a, generate_series(1, p.pronargs) place
                    WHERE p.proname IN ({functions}) AND p.pronargs > 2 AND p.provariadic = 0
                        AND NOT EXISTS (
                            SELECT
                            FROM unnest(p.proargtypes::oid[]) t
                            JOIN pg_type y ON y.oid = t
                            WHERE y.typtype = 'p')
                ) overloads
                UNION ALL
                SELECT format('CREATE FUNCTION hostile.of_two(%s, %s) RETURNS text LANGUAGE plpgsql {body}',
                    a, b)
                FROM unnest(types) a, unnest(types) b
            LOOP
                EXECUTE made;
            END LOOP;
            FOR made IN
                SELECT format(
                    'CREATE OPERATOR hostile.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = hostile.of_two)',
                    o, a, b)
                FROM unnest(ARRAY[{operators}]) o, unnest(types) a, unnest(types) b
            LOOP
                EXECUTE made;
            END LOOP;
        END $do$",
        body = BODY.replace('\'', "''"),
    );
    sqlx::raw_sql(AssertSqlSafe(make)).execute(conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_of_ours_is_taken_by_a_function_of_somebody_else() {
    let world = World::<Postgres>::new().await;
    let mut conn = world.pool().acquire().await.unwrap();
    let mut statements = Vec::new();
    for (name, statement) in world.engine().sql().named() {
        let mut sql = statement.as_str().to_owned();
        // A table that is locked calls nothing.
        let calls_nothing = statement.is_absent() || sql.starts_with("LOCK ");
        if calls_nothing || SCRIPTS.contains(&&*name) || Postgres::lacks(&mut conn, &name).await {
            continue;
        }
        if ["IN", "VALUES"].iter().any(|end| sql.ends_with(end)) {
            sql += LISTS.iter().find(|(listed, _)| *listed == name).expect(&name).1;
        }
        let types = types_of_binds(&mut conn, &sql).await;
        statements.push((name, sql, types));
    }
    let texts = Vec::from_iter(statements.iter().map(|(_, sql, _)| sql.as_str())).join("\n");
    // Functions and triggers run in the session of their caller.
    let texts = texts + &world.migrations_sql();
    let words = texts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(');
    let words = words.flat_map(|word| word.split_inclusive('('));
    let functions = words.filter_map(|word| word.strip_suffix('('));
    let functions = functions.filter(|name| !name.is_empty()).map(str::to_owned);
    let operators = "= <> < <= > >= + - * / % || ->> -> ~ @>".split(' ');
    let operators = operators.filter(|name| texts.contains(name)).map(str::to_owned);
    make_overloads(&mut conn, &functions.collect(), &operators.collect()).await;

    sqlx::raw_sql("SET search_path = hostile").execute(&mut *conn).await.unwrap();
    let (mut problems, probes) = (Vec::new(), statements.len());
    for (name, sql, types) in statements {
        let probe = name.replace('.', "_");
        let types = types.join(", ");
        let probe = format!(
            "CREATE FUNCTION probes.{probe}({types}) RETURNS void LANGUAGE sql BEGIN ATOMIC {sql}; END"
        );
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(probe)).execute(&mut *conn).await {
            problems.push(format!("{name}: {error}"));
        }
    }
    let taken = "
        SELECT format('%s: %s', f.proname, pg_describe_object(d.refclassid, d.refobjid, 0))
        FROM pg_depend d
        JOIN pg_proc f ON d.classid = 'pg_proc'::regclass AND d.objid = f.oid
        LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
        LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND d.refobjid = o.oid
        WHERE f.pronamespace = 'probes'::regnamespace
            AND 'hostile'::regnamespace IN (p.pronamespace, o.oprnamespace)";
    let mut clean = world.pool().acquire().await.unwrap();
    problems.extend(sqlx::query_scalar::<_, String>(taken).fetch_all(&mut *clean).await.unwrap());
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    assert!(probes > 100, "{probes} statements");

    // What the database runs by itself: functions and triggers.
    for call in [
        "SELECT twinbox.publish('a', 'k', '{}', headers => '{\"a\": \"b\"}')",
        "SELECT twinbox.publish_bytes('a', 'k', '', 'text/plain')",
        "SELECT twinbox.plan_effect('00000000-0000-7000-8000-000000000000', 'a', 'b', '{}')",
        // It compares.
        "SELECT twinbox.plan_effect('00000000-0000-7000-8000-000000000000', 'a', 'b', '{}')",
        "SELECT twinbox.fence('c', 1::bigint, 1::bigint, 1::bigint, 1000::bigint)",
        "SELECT twinbox.purge_mark('c')",
        "DELETE FROM twinbox.outbox WHERE false",
    ] {
        sqlx::raw_sql(call).execute(&mut *conn).await.unwrap_or_else(|error| panic!("{call}: {error}"));
    }
    // The trap is one: 'a' and 0 are text and integer, and Postgres has the function for text and bigint.
    let trap = "SELECT hashtextextended('a', 0)";
    let trapped = sqlx::raw_sql(trap).execute(&mut *conn).await.map(drop).expect_err(trap);
    assert!(trapped.to_string().contains("somebody else"), "{trapped}");
}
