//! Making a replay of a plan.
use super::{follow::follow, row::print_replay};
use crate::{
    change::{Change, ChangeArguments, Done, print_done},
    exit::Exit,
    output::note,
    session::Session,
};
use clap::Args;
use twinbox_ops::replays::{NewReplay, ReplayPlan};
use twinbox_sql::{Dialect, ErrorKind};

#[derive(Debug, Args)]
#[command(next_help_heading = "Replay")]
pub(crate) struct RunArguments {
    /// The highest number of messages a second.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Do not wait for the end.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    change: ChangeArguments,
}

impl RunArguments {
    pub(crate) fn operator(&self) -> String {
        self.change.operator()
    }
}

/// Asks, makes the replay, and waits for its end unless `--no-wait`. Relays or consumers execute it.
pub(crate) async fn run_replay<DB: Dialect>(
    session: &Session<DB>,
    arguments: RunArguments,
    plan: &ReplayPlan,
    new: NewReplay,
    command: &'static str,
    effect: String,
) -> Result<(), Exit> {
    let RunArguments { rate, no_wait, change } = arguments;
    let target = format!("{}: {}", plan.destination, plan.selection);
    let planned = Change { command, target: &target, effect };
    if plan.selected == 0 {
        let text =
            format!("{} has settled no message of this selection: {}.", plan.destination, plan.selection);
        print_done(session, &planned, Done::new(0, text));
        return Ok(());
    }
    let new = new.rate(rate).reason(change.reason.clone());
    let act = async || match session.ops.make_replay(plan, new).await {
        Ok(replay) => Ok((plan.selected, replay)),
        Err(error) if error.kind() == ErrorKind::CommitUnknown => {
            Err(Exit::failure("it is unknown whether the replay was made: `twinbox replays list` shows it"))
        }
        Err(error) => Err(error.into()),
    };
    let Some(replay) = change.make(session, &planned, act).await? else { return Ok(()) };
    let id = replay.id;
    if no_wait {
        let summary =
            format!("Replay {id} is made: `twinbox replays show {id} --follow` shows its progress.");
        return print_replay(&session.ops, &replay, Some(summary), &session.output).await;
    }
    note(&format!("Replay {id} is made. Leaving does not stop it."));
    follow(session, id).await
}
