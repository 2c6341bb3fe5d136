//! Accounts for servers that refuse to run as root.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _, PermissionsExt, chown};
use std::path::Path;

use super::error::ServerError;
use super::sandbox::Sandbox;

/// An account of this machine other than root.
#[derive(Debug, PartialEq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Makes the private folder of a server that refuses to run as root: in `parent`, or where temporary files
/// are.
///
/// If this process is root, returns an account too, and the folder belongs to it. `usual` is the account with
/// which a distribution runs the server.
pub(super) fn sandbox(
    parent: Option<&Path>,
    server: &str,
    quit: &'static str,
    usual: &str,
) -> Result<(Sandbox, Option<Account>), ServerError> {
    // The owner of a new folder shows whether this process runs as root.
    let temp = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let mut sandbox = Sandbox::new(&temp, server, quit)?;
    if owner(sandbox.dir())? != 0 {
        return Ok((sandbox, None));
    }
    let account = unprivileged_account(usual)?;
    if !open_to_all(&temp) {
        sandbox = Sandbox::new(Path::new("/tmp"), server, quit)?;
    }
    account.own(sandbox.dir())?;
    Ok((sandbox, Some(account)))
}

impl Account {
    /// Makes this account the owner of a file or a folder.
    pub(super) fn own(&self, path: &Path) -> Result<(), ServerError> {
        chown(path, Some(self.uid), Some(self.gid)).map_err(|source| {
            ServerError::io(format!("cannot hand {} to account {}", path.display(), self.name), source)
        })
    }
}

/// Writes a file that the account of a server alone can read.
pub(super) fn write(account: Option<&Account>, path: &Path, text: &str) -> Result<(), ServerError> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| ServerError::io(format!("cannot write {}", path.display()), source))?;
    account.map_or(Ok(()), |account| account.own(path))
}

/// Chooses an account with a name, because Postgres looks up the name of its account.
fn unprivileged_account(usual: &str) -> Result<Account, ServerError> {
    let passwd = fs::read_to_string("/etc/passwd").map_err(|source| {
        ServerError::io("cannot read /etc/passwd to run a server as another account", source)
    })?;
    choose_account(&passwd, usual).ok_or_else(|| {
        ServerError::new("cannot run a database server as root, and /etc/passwd has no other account")
    })
}

fn choose_account(passwd: &str, usual: &str) -> Option<Account> {
    let accounts = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        let rank = match name {
            name if name == usual => 0,
            "nobody" => 1,
            _ if uid >= 1000 => 2,
            _ => 3,
        };
        (uid != 0).then(|| (rank, Account { name: name.to_owned(), uid, gid }))
    });
    accounts.min_by_key(|(rank, _)| *rank).map(|(_, account)| account)
}

fn owner(dir: &Path) -> Result<u32, ServerError> {
    let metadata = fs::metadata(dir);
    metadata.map(|m| m.uid()).map_err(|source| ServerError::io("cannot read the data folder", source))
}

fn open_to_all(dir: &Path) -> bool {
    dir.ancestors().all(|dir| fs::metadata(dir).is_ok_and(|m| m.permissions().mode() & 0o001 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unprivileged_account_is_chosen() {
        let chosen = |passwd: &str| choose_account(passwd, "postgres");
        let account = |name: &str, uid, gid| Some(Account { name: name.to_owned(), uid, gid });
        let root = "root:x:0:0::/root:/bin/sh\n";
        assert_eq!(chosen(root), None);
        let others = format!("{root}daemon:x:1:1::/:/bin/sh\nme:x:1000:1001::/:/bin/sh\n");
        assert_eq!(chosen(&others), account("me", 1000, 1001));
        let nobody = format!("{others}nobody:x:65534:65534::/:/bin/sh\nbroken line\n");
        assert_eq!(chosen(&nobody), account("nobody", 65534, 65534));
        let postgres = format!("{nobody}postgres:x:101:104::/:/bin/sh");
        assert_eq!(chosen(&postgres), account("postgres", 101, 104));
        assert_eq!(choose_account(&postgres, "mysql"), account("nobody", 65534, 65534));
    }
}
