//! The servers on which Twinbox runs, by what they say of themselves. Others speak the same protocol, and
//! lose or reverse messages.
use crate::{Error, ErrorKind};

/// The longest part of a version that an error repeats.
const SHOWN_MAX: usize = 60;

/// A product, with the oldest version on which the tests have run.
struct Product {
    name: &'static str,
    oldest: (u32, u32),
}

/// Products with the protocol of Postgres, and the words in their versions.
#[cfg(feature = "postgres")]
const OTHERS_OF_POSTGRES: [(&str, &str); 6] = [
    ("CockroachDB", "CockroachDB"),
    ("-YB-", "YugabyteDB"),
    ("Redshift", "Redshift"),
    ("Greenplum", "Greenplum"),
    ("Materialize", "Materialize"),
    ("Gauss", "GaussDB"),
];
/// The same of MySQL.
#[cfg(feature = "mysql")]
const OTHERS_OF_MYSQL: [(&str, &str); 4] =
    [("TiDB", "TiDB"), ("Vitess", "Vitess"), ("OceanBase", "OceanBase"), ("Doris", "Doris")];

/// Refuses a server by its `version()`, such as `PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64`.
#[cfg(feature = "postgres")]
pub(super) fn check_postgres(version: &str) -> Result<(), Error> {
    let needed = "Postgres 14 or newer";
    if let Some(other) = named(version, &OTHERS_OF_POSTGRES) {
        return Err(other_product(other, needed));
    }
    let Some(numbers) = version.strip_prefix("PostgreSQL ") else {
        return Err(other_product(version, needed));
    };
    Product { name: "Postgres", oldest: (14, 0) }.check(numbers, needed)
}

/// Refuses a server by its `version()`, such as `10.11.14-MariaDB-0+deb12u2` or `9.7.4`.
#[cfg(feature = "mysql")]
pub(super) fn check_mysql(version: &str) -> Result<(), Error> {
    let needed = "MySQL 8.4 or newer, or MariaDB 10.11 or newer";
    if let Some(other) = named(version, &OTHERS_OF_MYSQL) {
        return Err(other_product(other, needed));
    }
    let product = match version.contains("MariaDB") {
        true => Product { name: "MariaDB", oldest: (10, 11) },
        false => Product { name: "MySQL", oldest: (8, 4) },
    };
    product.check(version, needed)
}

/// Another product with the protocol of a database.
pub(super) fn other_product(name: &str, needed: &str) -> Error {
    let name: String = name.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    refused(format!("this server is {name}, on which Twinbox does not keep its promises: it needs {needed}"))
}

impl Product {
    fn check(&self, version: &str, needed: &str) -> Result<(), Error> {
        let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        match found >= self.oldest {
            true => Ok(()),
            false => {
                let (major, minor) = found;
                Err(refused(format!("this server is {} {major}.{minor}: Twinbox needs {needed}", self.name)))
            }
        }
    }
}

fn named<'a>(version: &str, others: &[(&str, &'a str)]) -> Option<&'a str> {
    others.iter().find(|(word, _)| version.contains(word)).map(|(_, name)| *name)
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None: it is supported.
    fn refusals<const N: usize>(
        check: fn(&str) -> Result<(), Error>,
        versions: [&str; N],
    ) -> [Option<String>; N] {
        versions.map(|version| check(version).err().map(|error| error.to_string()))
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_14_and_newer_is_supported_and_no_other_product_with_its_protocol() {
        let supported = [
            "PostgreSQL 14.23 on x86_64-pc-linux-gnu, compiled by gcc",
            "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu",
            "PostgreSQL 16.1 (EnterpriseDB Advanced Server 16.1.0) on x86_64",
            "PostgreSQL 19beta1 on aarch64",
        ];
        assert_eq!(refusals(check_postgres, supported), [const { None }; 4]);
        let others = [
            "PostgreSQL 13.23 on x86_64-pc-linux-gnu",
            "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)",
            "PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu",
            "PostgreSQL 14.4 (Greenplum Database 7.1.0) on x86_64",
            "a server of one's own\nwith lines",
        ];
        let promise = "on which Twinbox does not keep its promises: it needs Postgres 14 or newer";
        let expected = [
            "this server is Postgres 13.23: Twinbox needs Postgres 14 or newer".to_owned(),
            format!("this server is CockroachDB, {promise}"),
            format!("this server is YugabyteDB, {promise}"),
            format!("this server is Greenplum, {promise}"),
            format!("this server is a server of one's ownwith lines, {promise}"),
        ];
        assert_eq!(refusals(check_postgres, others), expected.map(Some));
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn mysql_8_4_and_mariadb_10_11_and_newer_are_supported_and_no_other_product_with_their_protocol() {
        let supported =
            ["9.7.4", "8.4.0-1", "10.11.14-MariaDB-0+deb12u2-log", "11.8.9-MariaDB", "12.0.2-MariaDB"];
        assert_eq!(refusals(check_mysql, supported), [const { None }; 5]);
        let others = ["8.0.45", "10.6.22-MariaDB", "8.0.11-TiDB-v8.5.0", "8.4.0-Vitess", ""];
        let needed = "MySQL 8.4 or newer, or MariaDB 10.11 or newer";
        let promise = format!("on which Twinbox does not keep its promises: it needs {needed}");
        let expected = [
            format!("this server is MySQL 8.0: Twinbox needs {needed}"),
            format!("this server is MariaDB 10.6: Twinbox needs {needed}"),
            format!("this server is TiDB, {promise}"),
            format!("this server is Vitess, {promise}"),
            format!("this server is MySQL 0.0: Twinbox needs {needed}"),
        ];
        assert_eq!(refusals(check_mysql, others), expected.map(Some));
    }
}
