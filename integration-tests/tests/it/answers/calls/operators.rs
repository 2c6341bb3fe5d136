//! Calls of operators, by the tool and by the console.
use super::{answered, calls};
use crate::support::{
    effects::{WELCOME, mail},
    stores::Placed,
};
use std::time::Duration;
use twinbox::{
    Draft, Timestamp,
    effects::{EffectId, Effects},
    ops::{
        AuditIntent, Ops, Role,
        dead_letters::{DeadLetterAction, DeadLetterFilter},
        effects::{Change, EffectFilter, Resolution},
        replays::{NewReplay, Selection},
    },
};
use uuid::Uuid;

const INTENT: AuditIntent<'static> = AuditIntent { operator: "ada", command: "x", target: "y", reason: None };
const CONSUMER: &str = "tests.silence";

fn of_consumer() -> DeadLetterFilter {
    DeadLetterFilter { consumer: Some(CONSUMER.to_owned()), ..DeadLetterFilter::default() }
}

calls! {
    "status": |store, _world| {
        let ops = Ops::new(store);
        ops.now().await?;
        ops.readers().await?;
        ops.consumers().await?;
        ops.consumer_names().await?;
        ops.consumer_backlog(CONSUMER).await?;
        ops.partition_checkpoints(CONSUMER).await?;
        ops.delayed_overdue().await?;
        ops.server_settings().await?;
        ops.backlog(Some(Timestamp::from_micros(0))).await?;
        ops.backlog(None).await.map(drop)
    }
    "doctor": |store, world| {
        let ops = Ops::new(store);
        ops.role().await?;
        ops.missing_rights(None, Role::Runtime).await?;
        ops.excess_rights(None, &[Role::Runtime]).await?;
        ops.altered_tables().await?;
        ops.table_locks().await?;
        let _ = world;
        Ok(())
    }
    "dead letters": |store, _world| {
        let ops = Ops::new(store);
        let all = DeadLetterFilter::default();
        for owner in ops.dead_letter_owners(&all).await? {
            let page = ops.dead_letters(&owner, &all, None, 2).await?;
            ops.dead_letters(&owner, &all, page.next, 2).await?;
        }
        for filter in [all, of_consumer()] {
            let groups = ops.dead_letter_groups(&filter).await?;
            for group in groups.iter().take(2) {
                ops.dead_letter(&group.newest.id).await?;
                ops.dead_letter_message(&group.newest.id).await?;
                let of_group = DeadLetterFilter {
                    fingerprint: Some(group.newest.fingerprint.clone()), ..filter.clone()
                };
                ops.each_dead_letter(&of_group, drop).await?;
            }
            ops.each_dead_letter(&filter, drop).await?;
        }
        Ok(())
    }
    "redrive, discard and import": |store, _world| {
        let ops = Ops::new(store);
        for group in ops.dead_letter_groups(&DeadLetterFilter::default()).await?.iter().take(2) {
            let id = [group.newest.id.clone()];
            ops.redrive(&id, Duration::ZERO).await?;
        }
        let mended = Draft::of(&Placed { n: 30 }).unwrap().into_message("shop");
        ops.import_dead_letters(CONSUMER, std::slice::from_ref(&mended)).await?;
        let groups = ops.dead_letter_groups(&of_consumer()).await?;
        let first = Vec::from_iter(groups.iter().take(1).map(|group| group.newest.id.clone()));
        ops.discard(&first).await.map(drop)
    }
    "bulk actions": |store, _world| {
        let ops = Ops::new(store);
        for destination in ops.readers().await? {
            let filter =
                DeadLetterFilter { destination: Some(destination.name), ..DeadLetterFilter::default() };
            ops.plan_bulk_action(DeadLetterAction::Discard, &filter).await?;
        }
        let plan = ops.plan_bulk_action(DeadLetterAction::Redrive, &of_consumer()).await?;
        let made = ops.make_bulk_action(&plan, Duration::ZERO, &INTENT).await;
        ops.bulk_actions(10).await?;
        let Ok(made) = made else { return answered(made) };
        ops.bulk_action(made.id).await?;
        ops.cancel_bulk_action(made.id).await.map(drop)
    }
    "replays": |store, _world| {
        let ops = Ops::new(store);
        let selection = Selection::new().key(Some("4".to_owned()));
        ops.purge_marks_since(Timestamp::from_micros(0)).await?;
        let plan = ops.plan_replay(&format!("consumer:{CONSUMER}"), &selection).await?;
        let made = ops.make_replay(&plan, NewReplay::reprocess(CONSUMER, "ada")).await;
        ops.replays(10).await?;
        let Ok(made) = made else { return answered(made) };
        ops.replay(made.id).await?;
        answered(ops.pause_replay(made.id, "lunch").await)?;
        answered(ops.resume_replay(made.id).await)?;
        answered(ops.cancel_replay(made.id).await)
    }
    "trail and keys": |store, _world| {
        let ops = Ops::new(store);
        let message = store.published("orders.placed", 1).await?.pop();
        let id = message.map_or("o-1".to_owned(), |message| message.message_id().to_string());
        ops.trail(&id).await?;
        ops.trail("o-1").await?;
        ops.key_page("4", None, 10).await?;
        ops.messages_of_key("4", Timestamp::from_micros(0), 10).await?;
        ops.parked_of_key("4", 10).await.map(drop)
    }
    "parked": |store, _world| {
        let ops = Ops::new(store);
        for reader in ops.readers().await? {
            let parked = ops.parked_messages(&reader.name, 10).await?;
            let key = parked.iter().find_map(|one| one.message.key.clone()).unwrap_or_default();
            answered(ops.release_key(&reader.name, &key).await)?;
            let id = parked.first().map_or(String::new(), |one| one.message.id.clone());
            answered(ops.skip_parked(&reader.name, &id).await)?;
        }
        ops.refused_messages(1, 10).await?;
        ops.parked_deliveries(CONSUMER, 10).await?;
        ops.parked_deliveries_of_key("4", 10).await?;
        answered(ops.retry_parked_deliveries(CONSUMER, Some("4")).await)
    }
    "pauses": |store, _world| {
        let ops = Ops::new(store);
        answered(ops.pause_consumer(CONSUMER, "lunch").await)?;
        answered(ops.resume_consumer(CONSUMER).await)?;
        answered(ops.pause_destination("relay", "lunch").await)?;
        answered(ops.resume_destination("relay").await)?;
        answered(ops.pause_vendor("mail", "lunch").await)?;
        answered(ops.resume_vendor("mail").await)
    }
    "effects": |store, world| {
        let source = Uuid::now_v7();
        let mut tx = world.begin().await.unwrap();
        Effects::new(world).plan(&mut tx, source, WELCOME, mail("hello")).await.unwrap();
        tx.commit().await.unwrap();
        let ops = Ops::new(store);
        ops.effects(&EffectFilter::default(), None, 10).await?;
        let of_source = ops.effects_of(source).await?;
        ops.effect_problems(Duration::ZERO).await?;
        ops.vendors().await?;
        ops.jobs().await?;
        ops.drift().await?;
        ops.unfinished_operations(10).await?;
        let Some(effect) = of_source.first() else { return Ok(()) };
        ops.effect(EffectId::Position(effect.position)).await?;
        let change = Change::Resolve(Resolution::Applied);
        answered(ops.change_effect(EffectId::Position(effect.position), change, "seen").await)
    }
    "the audit": |store, _world| {
        let ops = Ops::new(store);
        let entry = ops.begin_audit(&INTENT).await?;
        answered(ops.end_audit(entry, 1).await)?;
        ops.audit(10).await.map(drop)
    }
    "redact": |store, _world| { Ops::new(store).redact("2").await.map(drop) }
    "retire": |store, _world| { Ops::new(store).retire(&Uuid::now_v7().to_string()).await.map(drop) }
    "forget a consumer": |store, _world| { answered(Ops::new(store).forget_consumer("tests.gone").await) }
}
