//! The fields of a change, and what is made of them.
use crate::{
    failure::Failure,
    query::{self, shell},
};
use serde::Deserialize;

/// The fields that name what is to be changed. Each change reads some of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    pub(crate) consumer: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) group: Option<String>,
    #[serde(rename = "type")]
    pub(crate) types: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) rate: Option<String>,
}

/// A field that the change needs.
pub(crate) fn required(field: &Option<String>, name: &str) -> Result<String, Failure> {
    query::exact(field)?.ok_or_else(|| Failure::bad_request(format!("this change needs the field {name:?}")))
}

/// A command for a shell: the name of the command, what it is about, and an option for each field that is
/// given.
pub(crate) fn command(name: &str, about: &[&str], options: &[(&str, Option<String>)]) -> String {
    let mut words = vec!["twinbox".to_owned(), name.to_owned()];
    words.extend(options.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        // Else it would be read as an option.
        let joint = if value.starts_with('-') { "=" } else { " " };
        Some(format!("--{name}{joint}{}", shell(value)))
    }));
    if about.iter().any(|one| one.starts_with('-')) {
        words.push("--".to_owned());
    }
    words.extend(about.iter().map(|one| shell(one)));
    words.join(" ")
}

/// Fields of the form that are given.
pub(crate) fn hidden(fields: Vec<(&'static str, Option<String>)>) -> Vec<(&'static str, String)> {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_data_in_a_command() {
        let some = |text: &str| Some(text.to_owned());
        let options = [("key", some("a b")), ("group", None), ("since", some("-1"))];
        assert_eq!(command("keys list", &[], &options), "twinbox keys list --key 'a b' --since=-1");
        assert_eq!(command("keys unblock", &["--yes"], &[]), "twinbox keys unblock -- --yes");
        assert_eq!(command("effects retry", &["7"], &[]), "twinbox effects retry 7");
    }
}
