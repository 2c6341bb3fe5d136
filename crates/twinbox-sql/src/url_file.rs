//! Files that hold the URL of a database.
use crate::Dialect;
use sqlx::{Connection, Pool};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// How often the file is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets new connections of a pool use the user and the password of the URL that a file holds now, for those
/// that change while the program runs. Ends when the pool is closed.
///
/// The file is read once a second; replace it by a rename. `used` is the URL of which the pool was made,
/// `parse` makes the options of a URL. Open connections stay as they are, and end as the pool's options say.
///
/// A file that cannot be read, or whose URL differs in more than user and password before the host, is logged
/// once. Until it is fit again, new connections use the last URL. Another database needs a restart.
pub async fn follow_url_file<DB, F>(pool: Pool<DB>, file: PathBuf, mut used: String, parse: F)
where
    DB: Dialect,
    F: Fn(&str) -> sqlx::Result<<DB::Connection as Connection>::Options>,
{
    let following = async {
        let mut is_unfit = false;
        loop {
            tokio::time::sleep(INTERVAL).await;
            match read(&file, &used, &parse).await {
                Ok((url, options)) => {
                    is_unfit = false;
                    if url != used {
                        pool.set_connect_options(options);
                        let file = file.display();
                        tracing::info!(%file, "new connections use the changed login of the database URL");
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
async fn read<O>(
    file: &Path,
    used: &str,
    parse: impl Fn(&str) -> sqlx::Result<O>,
) -> Result<(String, O), String> {
    let text = text(file).await.map_err(|error| format!("cannot read the file: {error}"))?;
    let url = text.trim();
    if without_login(url) != without_login(used) {
        return Err("the file holds no URL, or that of another database, which needs a restart".to_owned());
    }
    let options = parse(url).map_err(|_| "the URL in the file cannot be parsed")?;
    Ok((url.to_owned(), options))
}

/// To open a pipe that nobody writes to would never end, and the program waits for it when it ends.
async fn text(file: &Path) -> io::Result<String> {
    match tokio::fs::metadata(file).await?.is_file() {
        true => tokio::fs::read_to_string(file).await,
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// The scheme, and what follows the login.
fn without_login(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    Some((scheme, rest.rsplit_once('@').map_or(rest, |(_, place)| place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_login_may_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        let used = "postgres://me:one@host:5/shop?sslmode=verify-full";
        let read_as = async |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(&file, used, |url| Ok(url.len())).await
        };
        for login in ["me:one@", "me:two@", "you:t%40wo@", ""] {
            let url = format!("postgres://{login}host:5/shop?sslmode=verify-full");
            assert_eq!(read_as(&format!("{url}\n")).await, Ok((url.clone(), url.len())));
        }
        for other in [
            "",
            "postgres://me:two@host:5/shop",
            "postgres://me:two@host:5/shop?sslmode=verify",
            "postgres://me:two@other:5/shop?sslmode=verify-full",
            "mysql://me:two@host:5/shop?sslmode=verify-full",
        ] {
            let error = read_as(other).await.unwrap_err();
            assert!(error.contains("restart") && !error.contains("two"), "{error}");
        }
        let of_a_folder = read(folder.path(), used, |_| Ok(())).await.unwrap_err();
        assert!(of_a_folder.contains("no regular file"), "{of_a_folder}");
        let missing = read(&folder.path().join("none"), used, |_| Ok(())).await.unwrap_err();
        assert!(missing.contains("cannot read the file"), "{missing}");
    }
}
