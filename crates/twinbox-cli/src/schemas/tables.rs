//! `twinbox schemas migrate`, `show` and `print`.
use crate::{
    change::{Change, ChangeArguments, Done, print_done},
    connection::{Connection, ConnectionArguments, DatabaseName},
    exit::Exit,
    output::{Output, print_line},
    session::{Session, open_file},
};
use clap::Subcommand;
use serde::Serialize;
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use twinbox_ops::{AuditIntent, Ops};
use twinbox_sql::{Dialect, ErrorKind, Store, sqlite::open_or_make};

#[derive(Debug, Subcommand)]
pub(crate) enum TablesCommand {
    /// Create the tables, or update them to this version. Needs the right to create tables.
    Migrate {
        /// The service that owns the tables. Required for new tables.
        #[arg(long, value_name = "NAME")]
        service: Option<String>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Show the version of the tables and the version of this tool.
    Show,
    /// Print the SQL of `migrate` for an empty database, for a review or for another tool.
    Print {
        /// The service that will own the tables.
        #[arg(long, value_name = "NAME")]
        service: String,
    },
}

pub(super) async fn run(
    command: TablesCommand,
    connection: ConnectionArguments,
    output: Output,
) -> Result<(), Exit> {
    let (prepared, database) = connection.prepare()?;
    match prepared {
        Connection::Postgres(pool) => {
            let same = pool.clone();
            run_on(command, pool, async || Ok(same), database, connection, output).await
        }
        Connection::MySql(pool) => {
            let same = pool.clone();
            run_on(command, pool, async || Ok(same), database, connection, output).await
        }
        Connection::Sqlite(options) => {
            let to_look_at = match command {
                TablesCommand::Migrate { .. } | TablesCommand::Print { .. }
                    if !options.get_filename().exists() =>
                {
                    // An empty database stands for a missing file.
                    SqlitePool::connect_lazy_with(SqliteConnectOptions::new().in_memory(true))
                }
                _ => open_file((*options).clone()).await?,
            };
            let to_change = async || Ok(open_or_make(*options).await?);
            run_on(command, to_look_at, to_change, database, connection, output).await
        }
    }
}

/// `to_look_at` serves until the user has agreed to a change, and `to_change` from then on.
async fn run_on<DB: Dialect>(
    command: TablesCommand,
    to_look_at: sqlx::Pool<DB>,
    to_change: impl AsyncFnOnce() -> Result<sqlx::Pool<DB>, Exit>,
    database: DatabaseName,
    connection: ConnectionArguments,
    output: Output,
) -> Result<(), Exit> {
    let options = connection.store_options()?;
    match command {
        TablesCommand::Print { service } => {
            print_line(&Store::with_options(to_look_at, &service, options)?.migrations_sql());
            Ok(())
        }
        TablesCommand::Migrate { service, change } => {
            let store = match service {
                Some(service) => Store::with_options(to_look_at, &service, options)?,
                None => Store::open_existing(to_look_at, options).await.map_err(|error| match error.kind() {
                    ErrorKind::Schema => Exit::usage(
                        "there are no Twinbox tables here, or no right to read them: to create them, name \
                         their service with `--service NAME`",
                    ),
                    _ => error.into(),
                })?,
            };
            let ops = Ops::new(&store);
            migrate(Session { store, ops, database, connection, output }, to_change, &change).await
        }
        TablesCommand::Show => {
            let store = Store::open_existing(to_look_at, options).await?;
            show(&store, store.schema_version().await?, &output);
            Ok(())
        }
    }
}

#[derive(Serialize)]
struct VersionRow<'a> {
    service: &'a str,
    version: i64,
    /// The version of this tool.
    newest: i64,
}

fn show<DB: Dialect>(store: &Store<DB>, version: i64, output: &Output) {
    let (service, newest) = (store.service(), Store::<DB>::NEWEST_SCHEMA);
    output.one(&VersionRow { service, version, newest }, || match version < newest {
        true => format!("The tables of {service:?} have version {version}; this tool has version {newest}."),
        false => format!("The tables of {service:?} have version {version}: up to date."),
    });
}

/// The audit table is one of the created tables, so the entry is written last.
async fn migrate<DB: Dialect>(
    session: Session<DB>,
    to_change: impl AsyncFnOnce() -> Result<sqlx::Pool<DB>, Exit>,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    let (service, newest) = (session.store.service(), Store::<DB>::NEWEST_SCHEMA);
    let version = match session.store.schema_version().await {
        Err(error) if error.kind() == ErrorKind::Schema => 0,
        version => version?,
    };
    let effect = match version {
        0 => format!("This will create the tables of {service:?}, version {newest}."),
        _ => format!("This will update the tables of {service:?} from version {version} to {newest}."),
    };
    let target = format!("from version {version} to {newest}");
    let planned = Change { command: "schemas migrate", target: &target, effect };
    let is_old = version < newest;
    if is_old && !change.agreed(&session, &planned)? {
        return Ok(());
    }
    let session = match is_old {
        true => {
            let options = session.connection.store_options()?;
            let store = Store::with_options(to_change().await?, service, options)?;
            Session { ops: Ops::new(&store), store, ..session }
        }
        false => session,
    };
    if let Err(error) = session.store.migrate().await {
        let exit = Exit::from(error);
        if !exit.waited_for_lock {
            return Err(exit);
        }
        // Postgres has undone it all. MySQL repeats the migration that was cut off.
        return Err(session.with_locks(exit.and("Run it again when the lock is free.")).await);
    }
    let versions = u64::try_from(newest - version).unwrap_or(0);
    if is_old {
        let (operator, reason) = (change.operator(), change.reason.as_deref());
        let intent = AuditIntent { operator: &operator, command: planned.command, target: &target, reason };
        let entry = session.ops.begin_audit(&intent).await?;
        session.ops.end_audit(entry, versions).await?;
    }
    print_done(&session, &planned, Done::new(versions, "The tables are up to date."));
    Ok(())
}
