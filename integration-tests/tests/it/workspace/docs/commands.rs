//! Commands as documents show them, held against what the programs say of themselves.
use super::{super::root, packages, text};
use crate::support::helper;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    process::Command,
};

/// The help of programs, asked for once for each of their commands.
#[derive(Default)]
pub(super) struct Programs {
    helps: HashMap<Vec<String>, Help>,
}

/// The commands and options that a help lists.
#[derive(Debug, Default, Clone)]
struct Help {
    commands: BTreeSet<String>,
    /// Whether each option takes a value.
    options: BTreeMap<String, bool>,
}

impl Programs {
    /// An error says which word is wrong. Commands of other programs are not looked at.
    pub(super) fn check(&mut self, command: &str) -> Result<(), String> {
        let words = words(command);
        match *words.iter().map(String::as_str).collect::<Vec<_>>() {
            ["twinbox", ref rest @ ..] => self.follow("twinbox", rest),
            ["twinbox-relay", ref rest @ ..] => self.follow("twinbox-relay", rest),
            ["cargo", "xtask", ref rest @ ..] => xtask(rest),
            ["cargo", "run", ref rest @ ..] => run(rest),
            _ => Ok(()),
        }
    }

    fn follow(&mut self, program: &str, words: &[&str]) -> Result<(), String> {
        let mut path = vec![program.to_owned()];
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let help = self.help(&path);
            if word == "--" {
                return Ok(());
            }
            if word.starts_with('-') && word.len() > 1 {
                let option = word.split('=').next().unwrap_or(word);
                let takes_value =
                    help.options.get(option).ok_or_else(|| format!("there is no option {option}"))?;
                if *takes_value && !word.contains('=') {
                    words.next();
                }
            } else if !help.commands.is_empty() && is_placeholder(word) {
                return Ok(());
            } else if !help.commands.is_empty() {
                if !help.commands.contains(word) {
                    return Err(format!("there is no command {word} among {:?}", help.commands));
                }
                path.push(word.to_owned());
            }
        }
        Ok(())
    }

    fn help(&mut self, path: &[String]) -> Help {
        let known = self.helps.entry(path.to_vec());
        let help = known.or_insert_with(|| {
            let output =
                Command::new(helper::program(&path[0])).args(&path[1..]).arg("--help").output().unwrap();
            assert!(output.status.success(), "{path:?} --help: {output:?}");
            Help::read(&String::from_utf8(output.stdout).unwrap())
        });
        help.clone()
    }
}

impl Help {
    /// Commands stand below `Commands:`, indented by two spaces; options begin with `-` wherever they stand.
    fn read(text: &str) -> Self {
        let mut help = Self::default();
        let mut in_commands = false;
        for line in text.lines() {
            let words = line.trim_start();
            let indent = line.len() - words.len();
            if indent == 0 {
                in_commands = line.starts_with("Commands:");
            } else if in_commands && indent == 2 {
                help.commands.extend(words.split_whitespace().next().map(str::to_owned));
            } else if words.starts_with('-') && indent <= 6 {
                let head = words.split("  ").next().unwrap_or(words);
                let takes_value = head.contains('<');
                let names = head.split([',', ' ']).filter(|name| name.starts_with('-'));
                help.options.extend(names.map(|name| (name.to_owned(), takes_value)));
            }
        }
        help
    }
}

/// Words that stand for others: `NAME`, `…`.
fn is_placeholder(word: &str) -> bool {
    word.contains('…') || !word.chars().any(char::is_lowercase)
}

/// The words of a command as a shell reads them, up to a comment, a pipe or another command.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#' | '|' | '>' | '&' | ';') if word.is_none() => break,
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Against the usage that `xtask` prints. Its words in capitals stand for others.
fn xtask(words: &[&str]) -> Result<(), String> {
    let source = std::fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    let usage = source.lines().filter_map(|line| line.trim_start().split("cargo xtask ").nth(1));
    let usage = Vec::from_iter(usage.map(|line| line.split("  ").next().unwrap_or(line)));
    let fits = |usage: &&str| {
        let (fixed, open): (Vec<_>, Vec<_>) =
            usage.split(' ').partition(|word| word.chars().all(char::is_lowercase));
        words.starts_with(&fixed) && (!open.is_empty() || words.len() == fixed.len())
    };
    let is_known = words.first().is_none_or(|word| is_placeholder(word)) || usage.iter().any(fits);
    is_known.then_some(()).ok_or_else(|| format!("xtask knows {usage:?}"))
}

/// Package and program of a `cargo run`.
fn run(words: &[&str]) -> Result<(), String> {
    let value = |name| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1).copied());
    let packages = packages();
    let Some(name) = value("-p").or_else(|| value("--package")) else { return Ok(()) };
    let package = packages.get(name).ok_or_else(|| format!("there is no package {name}"))?;
    let Some(program) = value("--bin") else { return Ok(()) };
    let targets = package["targets"].as_array().unwrap();
    let found = targets.iter().any(|target| text(&target["name"]) == program);
    found.then_some(()).ok_or_else(|| format!("{name} has no program {program}"))
}

#[test]
fn commands_are_read_as_a_shell_does() {
    assert_eq!(
        words(r#"twinbox a --reason "b c" --yes  # why"#),
        ["twinbox", "a", "--reason", "b c", "--yes"]
    );
    assert_eq!(words("a 'b|c' | d"), ["a", "b|c"]);
    assert!(xtask(&["test", "http", "--", "t18"]).is_ok() && xtask(&["services", "up"]).is_ok());
    assert!(xtask(&["services"]).is_err() && xtask(&["tset"]).is_err());
    let mut programs = Programs::default();
    assert!(programs.check("twinbox --help").is_ok() && programs.check("twinbox …").is_ok());
    assert!(
        programs.check("twinbox nonsense").is_err() && programs.check("twinbox status --nonsense").is_err()
    );
    assert!(programs.check("twinbox-relay run --config relay.toml").is_ok());
}
