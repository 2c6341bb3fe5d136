//! `twinbox replays`.
mod follow;
mod plan;
pub(crate) mod row;
pub(crate) mod run;

use crate::{
    change::{Change, ChangeArguments, Done},
    exit::Exit,
    output::counted,
    selection::SelectionArguments,
    session::Session,
};
use clap::{Args, Subcommand};
use follow::follow;
use plan::{ReprocessArguments, ResendArguments, plan_reprocess, plan_resend, print_plan};
use row::{ReplayRow, print_replay};
use run::{RunArguments, run_replay};
use twinbox_ops::replays::{NewReplay, PurgeMark};
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum ReplaysCommand {
    /// Count the messages of a replay, and change nothing.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Plan a replay, ask, and have relays or consumers execute it.
    #[command(subcommand)]
    Run(RunCommand),
    /// List replays, newest first.
    List {
        /// The number of replays.
        #[arg(long, default_value_t = 20, value_name = "NUMBER")]
        limit: u32,
    },
    /// Show one replay with the messages that its destination refused.
    Show {
        /// Its number.
        id: i64,
        /// Wait until it has ended.
        #[arg(long)]
        follow: bool,
    },
    /// Stop a replay until `resume`.
    Pause(IdArguments),
    /// Continue a paused replay.
    Resume(IdArguments),
    /// End a replay early. Sent messages stay sent.
    Cancel(IdArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Messages again to a destination that lost them. Consumers that have handled a message skip it.
    Resend {
        #[command(flatten)]
        resend: ResendArguments,
        #[command(flatten)]
        selection: SelectionArguments,
    },
    /// Messages again for one consumer, which runs although it has handled them. Other consumers skip them.
    Reprocess {
        #[command(flatten)]
        reprocess: ReprocessArguments,
        #[command(flatten)]
        selection: SelectionArguments,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Messages again to a destination that lost them. Consumers that have handled a message skip it.
    Resend {
        #[command(flatten)]
        resend: ResendArguments,
        #[command(flatten)]
        selection: SelectionArguments,
        /// Also messages whose claims a consumer may have purged. Requires --reason.
        #[arg(long, requires = "reason", help_heading = "Replay")]
        force: bool,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Messages again for one consumer, which runs although it has handled them. Other consumers skip them.
    Reprocess {
        #[command(flatten)]
        reprocess: ReprocessArguments,
        #[command(flatten)]
        selection: SelectionArguments,
        #[command(flatten)]
        run: RunArguments,
    },
}

#[derive(Debug, Args)]
pub(crate) struct IdArguments {
    /// The number of the replay.
    id: i64,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run<DB: Dialect>(command: ReplaysCommand, session: &Session<DB>) -> Result<(), Exit> {
    let (store, ops, output) = (&session.store, &session.ops, &session.output);
    match command {
        ReplaysCommand::Plan(PlanCommand::Resend { resend, selection }) => {
            let selection = selection.resolve(store).await?;
            let (plan, purged) = plan_resend(session, &resend, &selection).await?;
            print_plan(&plan, None, &purged, output);
            Ok(())
        }
        ReplaysCommand::Plan(PlanCommand::Reprocess { reprocess, selection }) => {
            let selection = selection.resolve(store).await?;
            let plan = plan_reprocess(session, &reprocess, &selection).await?;
            print_plan(&plan, Some(&reprocess.consumer), &[], output);
            Ok(())
        }
        ReplaysCommand::Run(RunCommand::Resend { resend, selection, force, run }) => {
            run_resend(session, &resend, selection, force, run).await
        }
        ReplaysCommand::Run(RunCommand::Reprocess { reprocess, selection, run }) => {
            run_reprocess(session, reprocess, selection, run).await
        }
        ReplaysCommand::List { limit } => {
            let replays: Vec<_> = ops.replays(limit).await?.iter().map(ReplayRow::from).collect();
            output.list(&ReplayRow::COLUMNS, &replays, "There are no replays.");
            Ok(())
        }
        ReplaysCommand::Show { id, follow: false } => {
            print_replay(ops, &ops.replay(id).await?, None, output).await
        }
        ReplaysCommand::Show { id, follow: true } => follow(session, id).await,
        ReplaysCommand::Pause(IdArguments { id, change }) => {
            let effect = effect(session, id, "pause").await?;
            let reason = change.pause_reason();
            let act = async || {
                ops.pause_replay(id, &reason).await?;
                Ok(Done::new(1, format!("Replay {id} is paused.")))
            };
            let target = id.to_string();
            change.run(session, &Change { command: "replays pause", target: &target, effect }, act).await
        }
        ReplaysCommand::Resume(IdArguments { id, change }) => {
            let effect = effect(session, id, "resume").await?;
            let act = async || {
                ops.resume_replay(id).await?;
                Ok(Done::new(1, format!("Replay {id} is resumed.")))
            };
            let target = id.to_string();
            change.run(session, &Change { command: "replays resume", target: &target, effect }, act).await
        }
        ReplaysCommand::Cancel(IdArguments { id, change }) => {
            let effect = effect(session, id, "cancel").await?;
            let act = async || {
                let cancelled = ops.cancel_replay(id).await?;
                Ok(Done::new(u64::from(cancelled), format!("Replay {id} is cancelled.")))
            };
            let target = id.to_string();
            change.run(session, &Change { command: "replays cancel", target: &target, effect }, act).await
        }
    }
}

async fn run_resend<DB: Dialect>(
    session: &Session<DB>,
    resend: &ResendArguments,
    selection: SelectionArguments,
    force: bool,
    run: RunArguments,
) -> Result<(), Exit> {
    let selection = selection.resolve_for_change(&session.store).await?;
    let (plan, purged) = plan_resend(session, resend, &selection).await?;
    if !purged.is_empty() && !force && plan.selected > 0 {
        print_plan(&plan, None, &purged, &session.output);
        return Err(Exit::refused(
            "consumers have purged claims as old as these messages: handled messages would become dead \
             letters, \
             `in_doubt`. Use a later --since, or --force with --reason",
        ));
    }
    let effect = format!(
        "This will resend {} to {}: {}.{}",
        counted(plan.selected, "message"),
        plan.destination,
        plan.selection,
        warning(&purged)
    );
    let new = NewReplay::resend(run.operator());
    run_replay(session, run, &plan, new, "replays run resend", effect).await
}

async fn run_reprocess<DB: Dialect>(
    session: &Session<DB>,
    reprocess: ReprocessArguments,
    selection: SelectionArguments,
    run: RunArguments,
) -> Result<(), Exit> {
    let selection = selection.resolve_for_change(&session.store).await?;
    let plan = plan_reprocess(session, &reprocess, &selection).await?;
    let effect = format!(
        "This will reprocess {} with {}: {}.",
        counted(plan.selected, "message"),
        reprocess.consumer,
        plan.selection
    );
    let new = NewReplay::reprocess(reprocess.consumer, run.operator());
    run_replay(session, run, &plan, new, "replays run reprocess", effect).await
}

fn warning(purged: &[PurgeMark]) -> String {
    let names = purged.iter().map(|mark| mark.consumer.as_str()).collect::<Vec<_>>().join(", ");
    match names.is_empty() {
        true => names,
        false => format!(" Some are older than the purged inboxes of these consumers: {names}."),
    }
}

async fn effect<DB: Dialect>(session: &Session<DB>, id: i64, verb: &str) -> Result<String, Exit> {
    let replay = session.ops.replay(id).await?;
    if replay.state.has_ended() {
        return Err(Exit::refused(format!("replay {id} is {}", replay.state.as_str())));
    }
    Ok(format!(
        "This will {verb} replay {id} to {}: about {} of {} are done.",
        replay.destination,
        replay.done,
        counted(replay.selected, "message")
    ))
}
