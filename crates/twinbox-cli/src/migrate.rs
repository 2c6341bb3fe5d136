//! The tables.
use crate::{
    ask::Change,
    exit::Exit,
    output::{Output, say},
    place::{Connection, Place},
};
use clap::Subcommand;
use serde::Serialize;
use twinbox_sql::{Dialect, ErrorKind, Intent, Store};

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Bring the tables up to this version, or make them. Needs the right to create tables.
    Up {
        /// The service that owns them. Needed when they are new.
        #[arg(long, value_name = "NAME")]
        service: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    /// Which version the tables have, and which this tool brings.
    Status,
    /// Print what `up` runs on an empty database, for review or for another tool.
    Sql {
        /// The service that will own them.
        #[arg(long, value_name = "NAME")]
        service: String,
    },
}

pub(crate) async fn run(command: MigrateCommand, place: &Place, output: &Output) -> Result<(), Exit> {
    match place.connection()? {
        Connection::Postgres(pool) => on(command, pool, place, output).await,
        Connection::Sqlite(file) => {
            if !file.exists() && matches!(command, MigrateCommand::Status) {
                return Err(Exit::not_found(format!("there is no file {}", file.display())));
            }
            on(command, twinbox_sql::sqlite::open(file).await?, place, output).await
        }
    }
}

#[derive(Serialize)]
struct Version {
    service: Option<String>,
    version: i64,
    newest: i64,
}

async fn on<DB: Dialect>(
    command: MigrateCommand,
    pool: sqlx::Pool<DB>,
    place: &Place,
    output: &Output,
) -> Result<(), Exit> {
    match command {
        MigrateCommand::Sql { service } => {
            say(&Store::with_options(pool, &service, place.options())?.migrations_sql());
            Ok(())
        }
        MigrateCommand::Up { service, change } => {
            let store = match service {
                Some(service) => Store::with_options(pool, &service, place.options())?,
                None => Store::found(pool, place.options()).await.map_err(|error| match error.kind() {
                    ErrorKind::Schema => Exit::usage(
                        "there are no Twinbox tables here, or no right to read them: to make them, say whose they are \
                         to be, with `--service NAME`",
                    ),
                    _ => error.into(),
                })?,
            };
            up(&store, &change).await
        }
        MigrateCommand::Status => {
            let store = Store::found(pool, place.options()).await?;
            let version = store.schema_version().await?;
            let found = Version {
                service: Some(store.service().to_owned()),
                version,
                newest: Store::<DB>::NEWEST_SCHEMA,
            };
            output.one(&found, || {
                let service = store.service();
                match version < found.newest {
                    true => format!(
                        "The tables of {service:?} are at version {version}; this tool brings {}.",
                        found.newest
                    ),
                    false => format!("The tables of {service:?} are at version {version}: up to date."),
                }
            });
            Ok(())
        }
    }
}

/// The audit comes with the tables, so this is put on record when it is done.
async fn up<DB: Dialect>(store: &Store<DB>, change: &Change) -> Result<(), Exit> {
    let (service, newest) = (store.service(), Store::<DB>::NEWEST_SCHEMA);
    let found = match store.schema_version().await {
        Err(error) if error.kind() == ErrorKind::Schema => 0,
        found => found?,
    };
    let about = match found {
        0 => format!("This will make the tables of {service:?}, version {newest}."),
        _ => format!("This will bring the tables of {service:?} from version {found} to {newest}."),
    };
    if found < newest && !change.agrees(&about)? {
        return Ok(());
    }
    store.migrate().await?;
    if found < newest {
        let (who, target) = (change.who(), format!("from version {found} to {newest}"));
        let reason = change.reason.as_deref();
        let entry =
            store.begin_audit(&Intent { who: &who, what: "migrate up", target: &target, reason }).await?;
        store.end_audit(entry, u64::try_from(newest - found).unwrap_or(0)).await?;
    }
    say("The tables are up to date.");
    Ok(())
}
