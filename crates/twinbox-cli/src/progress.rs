//! Watching a replay. Leaving it does not end it.
use crate::{
    exit::Exit,
    output::{counted, duration, note, plain},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::{
    fmt::Write,
    io::IsTerminal as _,
    time::{Duration, Instant},
};
use twinbox_sql::{
    Dialect, Store,
    replay::{Replay, ReplayState},
};

/// How often it is looked how far it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often that is told where there is no terminal.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

const STYLE: &str = "{msg} [{wide_bar}] {share} {pace}";

/// Until it has ended, or somebody leaves. Answers with it.
pub(crate) async fn follow<DB: Dialect>(store: &Store<DB>, id: i64) -> Result<Replay, Exit> {
    let mut replay = store.replay(id).await?;
    let bar = bar(&replay);
    let on_terminal = std::io::stderr().is_terminal();
    let mut told_at = Instant::now();
    while !replay.state.has_ended() {
        bar.set_message(format!("Replay {id} {}", standing(&replay)));
        bar.set_position(replay.done);
        if !on_terminal && told_at.elapsed() >= TELL_INTERVAL {
            told_at = Instant::now();
            note(&format!("Replay {id} {}: {} of {}", standing(&replay), replay.done, replay.selected));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => {
                bar.finish_and_clear();
                return Err(Exit::interrupted(format!(
                    "left at {} of {}; the replay goes on: `twinbox replay status {id} --follow` comes back to it, \
                     and `twinbox replay pause {id}` or `cancel {id}` stop it",
                    replay.done, replay.selected
                )));
            }
        }
        replay = store.replay(id).await?;
    }
    bar.finish_and_clear();
    Ok(replay)
}

fn bar(replay: &Replay) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(Some(replay.selected), target);
    let style = ProgressStyle::with_template(STYLE).expect("a template that a test has seen");
    let style = style
        .with_key("share", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}/{}", state.pos(), state.len().unwrap_or_default());
        })
        .with_key("pace", |state: &ProgressState, out: &mut dyn Write| {
            let rate = state.per_sec();
            let _ = match rate >= 0.5 {
                true => write!(out, "{rate:.0}/s, {} left", duration(state.eta())),
                false => write!(out, "0/s"),
            };
        });
    bar.set_style(style.progress_chars("=> "));
    // What was done before it was looked at says nothing of the rate.
    bar.set_position(replay.done);
    bar.reset_eta();
    bar
}

/// A word for where it stands.
pub(crate) fn standing(replay: &Replay) -> String {
    match &replay.state {
        ReplayState::Paused { reason } => format!("paused ({})", plain(reason)),
        ReplayState::Running if !replay.alive => "waits for its process".to_owned(),
        state => state.as_str().to_owned(),
    }
}

/// How it ended.
pub(crate) fn conclude(replay: &Replay) -> Result<String, Exit> {
    let id = replay.id;
    match &replay.state {
        ReplayState::Cancelled => Err(Exit::partial(format!("replay {id} was cancelled before it was done"))),
        _ if replay.refused > 0 => Err(Exit::partial(format!(
            "replay {id} is done, and {} refused {} for good: `twinbox replay status {id}` says which",
            replay.destination,
            counted(replay.refused, "message")
        ))),
        _ => Ok(format!("Replay {id} is done: {}.", counted(replay.selected, "message"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        ProgressStyle::with_template(STYLE).unwrap();
    }
}
