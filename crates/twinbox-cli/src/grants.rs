//! `twinbox grants`.
#[cfg(feature = "nats")]
mod broker;

use crate::{
    connection::ConnectionArguments,
    exit::Exit,
    finding::{self, Finding, ok, warning, wrong},
    output::{Output, print_line},
    session::{Opened, Session},
};
use clap::Subcommand;
use twinbox_ops::{Deviation, DeviationKind, Ops, Role};
use twinbox_sql::{Dialect, ErrorKind};

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Print the GRANT statements. The owner of the tables runs them after every migration. With `--nats`
    /// the users of the broker. Needs no database.
    Print {
        /// For MySQL or MariaDB, and not for Postgres. A name is an account, such as `billing@10.0.0.%`, or a
        /// role of the server.
        #[arg(long)]
        mysql: bool,
        /// A database role and its purpose: `producer`, `web`, `runtime`, `keeper`, `operator`,
        /// `redactor` or `viewer`.
        /// Repeatable. Default: one role for each purpose, such as `shop_producer`.
        #[arg(long = "role", value_name = "NAME=PURPOSE", value_parser = parse_role)]
        roles: Vec<(String, Role)>,
        #[cfg(feature = "nats")]
        #[command(flatten)]
        broker: broker::BrokerArguments,
    },
    /// Check that database roles have the rights for their purposes, and no others: granted to the role, to
    /// everybody, or to a role that it is a member of; attributes, objects that it owns, functions with the
    /// rights of others. Then check the triggers of the tables, on which rights rest. Exit code 7 if
    /// something is missing or too much.
    Check {
        /// A database role and its purpose. Repeatable.
        #[arg(long = "role", value_name = "NAME=PURPOSE", value_parser = parse_role, required = true)]
        roles: Vec<(String, Role)>,
    },
}

/// Parses a role and its purpose.
pub(crate) fn parse_role(text: &str) -> Result<(String, Role), String> {
    let (name, purpose) = text.rsplit_once('=').ok_or("write `NAME=PURPOSE`, like `billing=runtime`")?;
    Ok((name.to_owned(), purpose.parse()?))
}

pub(crate) async fn run(
    command: GrantsCommand,
    connection: ConnectionArguments,
    output: Output,
) -> Result<(), Exit> {
    match command {
        #[cfg(feature = "nats")]
        GrantsCommand::Print { broker, .. } if broker.nats => {
            print_line(&broker.authorization()?);
            Ok(())
        }
        GrantsCommand::Print { mysql, roles, .. } => {
            let print = if mysql { twinbox_ops::grants_sql_mysql } else { twinbox_ops::grants_sql };
            print_line(print(connection.namespace(), &roles)?.trim_end());
            Ok(())
        }
        GrantsCommand::Check { roles } => match Opened::open(connection, output, true).await? {
            Opened::Postgres(session) => check(&session, &roles).await,
            Opened::MySql(session) => check(&session, &roles).await,
            Opened::Sqlite(session) => check(&session, &roles).await,
        },
    }
}

async fn check<DB: Dialect>(session: &Session<DB>, roles: &[(String, Role)]) -> Result<(), Exit> {
    let mut findings = check_roles(&session.ops, roles).await?;
    findings.extend(check_tables(&session.ops).await?);
    finding::print(&findings, &session.output)
}

/// One finding for each kind. `what`: its subject.
fn judged(deviations: &[Deviation], what: impl Fn(DeviationKind) -> String) -> Vec<Finding> {
    let of_kinds = deviations.chunk_by(|a, b| a.kind == b.kind);
    let findings = of_kinds.map(|all| {
        let (kind, found) = (all[0].kind, Vec::from_iter(all.iter().map(ToString::to_string)).join("; "));
        match kind.needs_review() {
            true => warning(&what(kind), found),
            false => wrong(&what(kind), found),
        }
    });
    findings.collect()
}

/// Judges triggers, rules and row-level security of the tables.
pub(crate) async fn check_tables<DB: Dialect>(ops: &Ops<DB>) -> Result<Vec<Finding>, Exit> {
    let altered = ops.altered_tables().await?;
    let mut findings = judged(&altered, |kind| match kind {
        DeviationKind::NotVisible => "triggers".to_owned(),
        kind => kind.as_str().to_owned(),
    });
    if !altered.iter().any(|one| matches!(one.kind, DeviationKind::Trigger | DeviationKind::NotVisible)) {
        findings.push(ok("triggers", "present and enabled"));
    }
    Ok(findings)
}

/// Judges what database roles lack for their purposes, and what they have beyond all of them.
pub(crate) async fn check_roles<DB: Dialect>(
    ops: &Ops<DB>,
    roles: &[(String, Role)],
) -> Result<Vec<Finding>, Exit> {
    let mut findings = Vec::new();
    for (n, (name, role)) in roles.iter().enumerate() {
        findings.push(check_rights(ops, Some(name), *role).await?);
        if roles[..n].iter().any(|(other, _)| other == name) {
            continue;
        }
        let purposes = roles.iter().filter(|(other, _)| other == name).map(|(_, role)| *role);
        let excess = ops.excess_rights(Some(name), &Vec::from_iter(purposes)).await?;
        let Some(excess) = excess else { continue };
        let what = |kind: DeviationKind| match kind {
            DeviationKind::NotVisible => format!("roles and procedures of {name}"),
            kind => format!("{} of {name} beyond its purposes", kind.as_str()),
        };
        // Where a part could not be read, there may be some.
        let is_known = !excess.iter().any(|one| one.kind == DeviationKind::NotVisible);
        if is_known && excess.iter().all(|one| one.kind.needs_review()) {
            findings.push(ok(&what(DeviationKind::Right), "none"));
        }
        findings.extend(judged(&excess, what));
    }
    Ok(findings)
}

/// Judges the rights of a database role for a purpose. `name`: None for the role of this connection.
pub(crate) async fn check_rights<DB: Dialect>(
    ops: &Ops<DB>,
    name: Option<&str>,
    role: Role,
) -> Result<Finding, Exit> {
    let what = match name {
        Some(name) => format!("rights of {name} as {}", role.as_str()),
        None => format!("own rights as {}", role.as_str()),
    };
    let missing = match ops.missing_rights(name, role).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(wrong(&what, error.to_string())),
        missing => missing?,
    };
    Ok(match missing.as_deref() {
        None => ok(&what, "this database has no roles"),
        Some([]) => ok(&what, "complete as in GRANTS.md"),
        Some(missing) => wrong(&what, format!("missing: {}", missing.join("; "))),
    })
}
