//! Files that hold the URL of a database.
use crate::Dialect;
use sqlx::{Connection, Pool};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How often the file is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets new connections of a pool use the URL that a file holds now, for a password or a token that changes
/// while the program runs. Ends when the pool is closed.
///
/// The file is read once a second. `used` is the URL of which the pool was made, `parse` makes the options
/// of a URL. Open connections stay as they are, and end as the pool's options say.
///
/// A file that cannot be read, or that holds no URL, is logged once. Until it holds one, new connections use
/// the last URL.
pub async fn follow_url_file<DB, F>(pool: Pool<DB>, file: PathBuf, mut used: String, parse: F)
where
    DB: Dialect,
    F: Fn(&str) -> sqlx::Result<<DB::Connection as Connection>::Options>,
{
    let following = async {
        let mut is_unfit = false;
        loop {
            tokio::time::sleep(INTERVAL).await;
            match read(&file, &parse).await {
                Ok((url, options)) => {
                    is_unfit = false;
                    if url != used {
                        pool.set_connect_options(options);
                        let file = file.display();
                        tracing::info!(%file, "new connections use the changed database URL");
                        used = url;
                    }
                }
                Err(what) if !is_unfit => {
                    is_unfit = true;
                    let file = file.display();
                    tracing::warn!(%file, "{what}: new connections use the last database URL");
                }
                Err(_) => {}
            }
        }
    };
    let _: sqlx::Result<()> = pool.close_event().do_until(following).await;
}

/// The errors hold nothing of the URL.
async fn read<O>(file: &Path, parse: impl Fn(&str) -> sqlx::Result<O>) -> Result<(String, O), String> {
    let text =
        tokio::fs::read_to_string(file).await.map_err(|error| format!("cannot read the file: {error}"))?;
    let url = text.trim();
    let options = parse(url).map_err(|_| "the file holds no URL of this kind of database")?;
    Ok((url.to_owned(), options))
}
