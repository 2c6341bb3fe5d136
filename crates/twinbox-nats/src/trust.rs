//! Options of a stream with which the permissions of its publishers do not hold.
//!
//! A server lets a user publish to the subjects that it may publish to. Some options give a publisher power
//! over the messages of other subjects too. No stream that this library creates has them; an operator may
//! have set them on one that exists.
//!
//! Other options change nothing of that: a TTL ends messages of its publisher alone, each message of a batch
//! is checked, a direct read needs a permission of its own, and a stream republishes nothing to itself.
use crate::error::Error;
use async_nats::jetstream::stream::Config;

/// Options of a stream that an operator has to know of, as texts. Each begins with "it", and says what to do.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// About options with which permissions do not hold, or with which no relay can publish.
    pub(crate) faults: Vec<String>,
    /// About options that change subjects, which permissions name.
    pub(crate) warnings: Vec<String>,
}

impl Trust {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            faults: of_other_subjects(config).into_iter().chain(of_counters(config)).collect(),
            warnings: of_transforms(config).collect(),
        }
    }

    /// Fails if there are faults.
    pub(crate) fn check(&self, stream: &str) -> Result<(), Error> {
        if self.faults.is_empty() {
            return Ok(());
        }
        Err(Error::mismatch(format!("the stream `{stream}` has to change: {}", self.faults.join("; "))))
    }

    /// Logs all. A relay runs all the same: to stop would protect no consumer.
    pub(crate) fn log(&self, stream: &str) {
        for found in self.faults.iter().chain(&self.warnings) {
            tracing::warn!(stream, found, "an option of the stream weakens permissions to publish");
        }
    }
}

/// With headers a publisher reaches messages of subjects that it may not publish to.
fn of_other_subjects(config: &Config) -> Option<String> {
    let name = &config.name;
    if config.allow_message_schedules {
        // A server turns roll-ups on for schedules, and schedules never off.
        return Some(
            "it has `allow_msg_schedules` and so `allow_rollup_hdrs`: whoever may publish one type can have \
             messages stored under every other, and delete the messages of all. A server turns schedules off \
             for no stream: move to another stream, without them"
                .to_owned(),
        );
    }
    if !config.allow_rollup || config.deny_purge {
        return None;
    }
    // A server turns roll-ups on for markers too, and the markers would be dead letters.
    let (why, markers) = match config.subject_delete_marker_ttl {
        Some(ttl) if !ttl.is_zero() => (" for `subject_delete_marker_ttl`", " --subject-del-markers-ttl=0s"),
        _ => ("", ""),
    };
    Some(format!(
        "it has `allow_rollup_hdrs`{why}: whoever may publish one type can delete the messages of all. Run \
         `nats stream edit {name}{markers} --no-allow-rollup`"
    ))
}

fn of_counters(config: &Config) -> Option<String> {
    let found = "it has `allow_msg_counter`: it takes counters, and refuses every message of a relay. A \
        server turns that off for no stream: move to another stream, without it";
    config.allow_message_counter.then(|| found.to_owned())
}

/// The subject that a consumer sees is then not the one that the server has checked.
fn of_transforms(config: &Config) -> impl Iterator<Item = String> {
    let see = "see that nobody may publish a message that gets a type which is not its own";
    let own = config.subject_transform.iter();
    let own = own.map(move |_| format!("it changes the subjects of messages (`subject_transform`): {see}"));
    let copied = config.mirror.iter().chain(config.sources.iter().flatten());
    let changed = copied.filter(|copied| !copied.subject_transforms.is_empty());
    own.chain(changed.map(move |copied| {
        format!("it copies `{}` under other subjects (`subject_transforms`): {see}", copied.name)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::jetstream::stream::{Republish, Source, SubjectTransform};
    use std::time::Duration;

    fn of(change: impl FnOnce(&mut Config)) -> Trust {
        let mut config = Config { name: "EVENTS".to_owned(), ..Config::default() };
        change(&mut config);
        Trust::of(&config)
    }

    #[track_caller]
    fn has_fault(change: impl FnOnce(&mut Config), words: &[&str]) {
        let trust = of(change);
        let error = trust.check("EVENTS").unwrap_err().to_string();
        assert!(trust.faults.len() == 1 && trust.warnings.is_empty(), "{trust:?}");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }

    #[track_caller]
    fn has_warning(change: impl FnOnce(&mut Config), words: &str) {
        let trust = of(change);
        trust.check("EVENTS").unwrap();
        assert!(trust.warnings.len() == 1 && trust.warnings[0].contains(words), "{trust:?}");
    }

    fn transform() -> SubjectTransform {
        SubjectTransform { source: "raw.>".to_owned(), destination: "events.0.>".to_owned() }
    }

    #[test]
    fn an_option_that_gives_publishers_other_subjects_is_a_fault() {
        let schedules = |config: &mut Config| {
            (config.allow_message_schedules, config.allow_rollup) = (true, true);
        };
        has_fault(schedules, &["the stream `EVENTS`", "`allow_msg_schedules`", "move to another stream"]);
        let roll_up = "`allow_rollup_hdrs`";
        let edit = "`nats stream edit EVENTS --no-allow-rollup`";
        has_fault(|config| config.allow_rollup = true, &[roll_up, edit]);
        let markers = |config: &mut Config| {
            config.allow_rollup = true;
            config.subject_delete_marker_ttl = Some(Duration::from_secs(60));
        };
        let edit = "`nats stream edit EVENTS --subject-del-markers-ttl=0s --no-allow-rollup`";
        has_fault(markers, &[roll_up, "`subject_delete_marker_ttl`", edit]);
        has_fault(|config| config.allow_message_counter = true, &["`allow_msg_counter`"]);
    }

    #[test]
    fn an_option_that_changes_subjects_is_a_warning() {
        has_warning(|config| config.subject_transform = Some(transform()), "`subject_transform`");
        let transforms = || vec![transform()];
        let raw = || Source { name: "RAW".to_owned(), subject_transforms: transforms(), ..Source::default() };
        has_warning(|config| config.mirror = Some(raw()), "it copies `RAW` under other subjects");
        let sources = vec![Source { name: "PLAIN".to_owned(), ..Source::default() }, raw()];
        has_warning(|config| config.sources = Some(sources), "it copies `RAW` under other subjects");
    }

    /// Each option that the library knows is decided on: it is tested above, or it is harmless.
    #[test]
    fn other_options_are_neither() {
        let harmless = |config: &mut Config| {
            let Config {
                allow_message_schedules: _,
                allow_rollup: _,
                subject_delete_marker_ttl: _,
                allow_message_counter: _,
                subject_transform: _,
                mirror,
                sources,
                allow_message_ttl,
                allow_atomic_publish,
                allow_batch_publish,
                allow_direct,
                mirror_direct,
                republish,
                deny_delete,
                deny_purge,
                discard_new_per_subject,
                no_ack,
                sealed,
                name: _,
                max_bytes: _,
                max_messages: _,
                max_messages_per_subject: _,
                discard: _,
                subjects: _,
                retention: _,
                max_consumers: _,
                max_age: _,
                max_message_size: _,
                storage: _,
                num_replicas: _,
                duplicate_window: _,
                template_owner: _,
                description: _,
                metadata: _,
                compression: _,
                consumer_limits: _,
                first_sequence: _,
                placement: _,
                persist_mode: _,
                pause_until: _,
            } = config;
            *mirror = Some(Source { name: "ORIGIN".to_owned(), ..Source::default() });
            *sources = Some(vec![Source { name: "ORIGIN".to_owned(), ..Source::default() }]);
            *republish = Some(Republish {
                source: ">".to_owned(),
                destination: "seen.>".to_owned(),
                headers_only: false,
            });
            for option in [
                allow_message_ttl,
                allow_atomic_publish,
                allow_batch_publish,
                allow_direct,
                mirror_direct,
                deny_delete,
                deny_purge,
                discard_new_per_subject,
                no_ack,
                sealed,
            ] {
                *option = true;
            }
        };
        let trust = of(harmless);
        assert!(trust.faults.is_empty() && trust.warnings.is_empty(), "{trust:?}");
    }
}
