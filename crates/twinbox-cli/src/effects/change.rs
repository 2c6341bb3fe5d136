//! `twinbox effects retry` and `resolve`.
use crate::{
    change::{Change, ChangeArguments, Done},
    exit::Exit,
    output::plain,
    session::Session,
};
use twinbox_ops::effects::{Change as EffectChange, EffectId, Resolution};
use twinbox_sql::Dialect;

pub(super) async fn run<DB: Dialect>(
    session: &Session<DB>,
    id: EffectId,
    wanted: EffectChange,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    let Some(reason) = &change.reason else {
        return Err(Exit::usage("it concerns a vendor outside: say with --reason how you know"));
    };
    let effect = session.ops.effect(id).await?.effect;
    wanted.check(&effect)?;
    let what = format!("effect {} ({} for {})", effect.position, plain(&effect.kind), plain(&effect.vendor));
    let (command, will, word, done) = match wanted {
        EffectChange::Retry => (
            "effects retry",
            format!("This will send {what} again, under a new key. Its vendor did nothing so far."),
            "retried",
            "is sent again",
        ),
        EffectChange::Resolve(Resolution::Applied) => (
            "effects resolve applied",
            format!("This will confirm {what}: its vendor has acted. It is never sent again."),
            "resolved as applied",
            "is confirmed",
        ),
        EffectChange::Resolve(Resolution::NotApplied) => (
            "effects resolve not-applied",
            format!(
                "This will send {what} again, under a new key. If its vendor has acted after all, it acts \
                 twice."
            ),
            "resolved as not applied",
            "is sent again",
        ),
    };
    let note = format!("{word} by {}: {reason}", change.operator());
    let target = effect.position.to_string();
    let act = async || {
        session.ops.change_effect(EffectId::Position(effect.position), wanted, &note).await?;
        let done = Done::new(1, format!("Effect {target} {done}."));
        Ok(done.detail("kind", effect.kind.clone()).detail("vendor", effect.vendor.clone()))
    };
    change.run(session, &Change { command, target: &target, effect: will }, act).await
}
