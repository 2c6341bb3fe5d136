//! How a plan is told.
use crate::output::{Output, counted, plain, table_of};
use serde::Serialize;
use twinbox_sql::replay::{PurgeMark, ReplayPlan};

#[derive(Serialize)]
struct TypeRow {
    event_type: String,
    messages: u64,
    oldest: String,
    newest: String,
}

#[derive(Serialize)]
struct SampleRow {
    position: i64,
    id: String,
    event_type: String,
    key: Option<String>,
    time: String,
}

#[derive(Serialize)]
struct ForgottenRow {
    consumer: String,
    forgotten_until: String,
}

#[derive(Serialize)]
struct PlanRow {
    kind: &'static str,
    destination: String,
    consumer: Option<String>,
    selection: String,
    selected: u64,
    types: Vec<TypeRow>,
    sample: Vec<SampleRow>,
    forgotten: Vec<ForgottenRow>,
}

pub(super) fn show(plan: &ReplayPlan, consumer: Option<&str>, forgotten: &[PurgeMark], output: &Output) {
    let row = PlanRow {
        kind: if consumer.is_some() { "reprocess" } else { "resend" },
        destination: plan.destination.clone(),
        consumer: consumer.map(str::to_owned),
        selection: plan.selection.to_string(),
        selected: plan.selected,
        types: plan
            .types
            .iter()
            .map(|one| TypeRow {
                event_type: one.event_type.clone(),
                messages: one.messages,
                oldest: one.oldest.to_string(),
                newest: one.newest.to_string(),
            })
            .collect(),
        sample: plan
            .sample
            .iter()
            .map(|one| SampleRow {
                position: one.position,
                id: one.id.clone(),
                event_type: one.event_type.clone(),
                key: one.key.clone(),
                time: one.time.to_string(),
            })
            .collect(),
        forgotten: forgotten
            .iter()
            .map(|mark| ForgottenRow {
                consumer: mark.consumer.clone(),
                forgotten_until: mark.time.to_string(),
            })
            .collect(),
    };
    output.one(&row, || told(&row));
}

fn told(plan: &PlanRow) -> String {
    let mut text = headline(plan);
    if plan.selected == 0 {
        return text;
    }
    let types =
        [("type", "event_type"), ("messages", "messages"), ("oldest", "oldest"), ("newest", "newest")];
    let sample =
        [("position", "position"), ("id", "id"), ("type", "event_type"), ("key", "key"), ("time", "time")];
    text += &format!(
        "\n\n{}\n\nThe first of them:\n{}",
        table_of(&types, &plan.types),
        table_of(&sample, &plan.sample)
    );
    if !plan.forgotten.is_empty() {
        let columns = [("consumer", "consumer"), ("has forgotten until", "forgotten_until")];
        text += &format!(
            "\n\nSome are older than what consumers remember:\n{}",
            table_of(&columns, &plan.forgotten)
        );
    }
    text + "\n\n"
        + match plan.consumer {
            Some(_) => "Its claims on them are taken back, and stay on record; other consumers pass them by.",
            None => {
                "Consumers that have handled them do nothing; what is older than a consumer in another database \
            remembers becomes a dead letter of it, `in_doubt`."
            }
        }
}

fn headline(plan: &PlanRow) -> String {
    let (messages, destination) = (counted(plan.selected, "message"), plain(&plan.destination));
    let selection = plain(&plan.selection);
    match &plan.consumer {
        None => format!("{messages} to {destination} again: {selection}."),
        Some(consumer) => {
            format!("{messages} for {} to run again, by way of {destination}: {selection}.", plain(consumer))
        }
    }
}
