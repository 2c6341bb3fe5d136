//! The progress of a replay. Leaving the progress bar does not stop the replay.
use super::row::{print_replay, state_text};
use crate::{
    exit::Exit,
    output::{counted, duration, note},
    session::Session,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::{
    fmt::Write,
    io::IsTerminal as _,
    time::{Duration, Instant},
};
use twinbox_ops::Ops;
use twinbox_sql::{
    Dialect,
    replay::{Replay, ReplayState},
};

/// How often the progress is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often the progress is printed if stderr is not a terminal.
const PRINT_INTERVAL: Duration = Duration::from_secs(10);

const STYLE: &str = "{msg} [{wide_bar}] {count} {pace}";

/// Waits until the replay has ended, and prints it.
///
/// # Errors
/// The replay was cancelled, or its destination refused messages: the replay is printed in these cases too.
/// The database failed, or Ctrl-C was pressed.
pub(super) async fn follow<DB: Dialect>(session: &Session<DB>, id: i64) -> Result<(), Exit> {
    let replay = wait(&session.ops, id).await?;
    let problem = match &replay.state {
        ReplayState::Cancelled => Some(format!("replay {id} was cancelled before it was done")),
        _ if replay.refused > 0 => Some(format!(
            "replay {id} is done, but {} refused {} for good",
            replay.destination,
            counted(replay.refused, "message")
        )),
        _ => None,
    };
    let done = || format!("Replay {id} is done: {}.", counted(replay.selected, "message"));
    let summary = problem.is_none().then(done);
    print_replay(&session.ops, &replay, summary, &session.output).await?;
    problem.map_or(Ok(()), |problem| Err(Exit::partial(problem)))
}

async fn wait<DB: Dialect>(ops: &Ops<DB>, id: i64) -> Result<Replay, Exit> {
    let mut replay = ops.replay(id).await?;
    let bar = progress_bar(&replay);
    let on_terminal = std::io::stderr().is_terminal();
    let mut printed_at = Instant::now();
    while !replay.state.has_ended() {
        bar.set_message(format!("Replay {id} {}", state_text(&replay)));
        bar.set_position(replay.done);
        if !on_terminal && printed_at.elapsed() >= PRINT_INTERVAL {
            printed_at = Instant::now();
            note(&format!("Replay {id} {}: {} of {}", state_text(&replay), replay.done, replay.selected));
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => {
                bar.finish_and_clear();
                return Err(Exit::interrupted(format!(
                    "the replay continues, {} of {} are done. `twinbox replays show {id} --follow` shows \
                     it again, `twinbox replays pause {id}` pauses it, `twinbox replays cancel {id}` ends it",
                    replay.done, replay.selected
                )));
            }
        }
        replay = ops.replay(id).await?;
    }
    bar.finish_and_clear();
    Ok(replay)
}

fn progress_bar(replay: &Replay) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(Some(replay.selected), target);
    let style = ProgressStyle::with_template(STYLE).expect("the template is valid: a test parses it");
    let style = style
        .with_key("count", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}/{}", state.pos(), state.len().unwrap_or_default());
        })
        .with_key("pace", |state: &ProgressState, out: &mut dyn Write| {
            let rate = state.per_sec();
            // A lower rate is printed as 0, and its end is not known.
            let _ = if rate >= 0.5 {
                write!(out, "{rate:.0}/s, {} left", duration(state.eta()))
            } else {
                write!(out, "0/s")
            };
        });
    bar.set_style(style.progress_chars("=> "));
    // Earlier progress must not count towards the rate.
    bar.set_position(replay.done);
    bar.reset_eta();
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_can_be_parsed() {
        ProgressStyle::with_template(STYLE).unwrap();
    }
}
