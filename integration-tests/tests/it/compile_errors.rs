//! The messages of the compiler for usual mistakes. Each mistake is a file of the folder `compile-errors`,
//! with its message beside it. After a change run `TWINBOX_OVERWRITE=1 cargo xtask test compile_errors` and
//! read every message as a user would: it must name the code to write instead.
use crate::{support::rustc::Rustc, workspace::root};
use std::{fs, path::Path, sync::Mutex, thread};

/// The variable that makes the test write the messages that it sees.
const OVERWRITE: &str = "TWINBOX_OVERWRITE";
const FOLDER: &str = "integration-tests/compile-errors";
/// The compiler's last words, which count errors or point at its manual.
const COUNTS: [&str; 3] =
    ["error: aborting due to", "For more information about", "Some errors have detailed"];

#[test]
fn every_compile_error_names_the_code_to_write_instead() {
    let rustc = Rustc::with(["serde", "sqlx", "twinbox"]);
    let folder = fs::read_dir(root().join(FOLDER)).unwrap();
    let files = folder.map(|file| file.unwrap().path());
    let mistakes = Vec::from_iter(files.filter(|file| file.extension().is_some_and(|end| end == "rs")));
    assert!(mistakes.len() >= 22, "{mistakes:?}");
    let (queue, wrong) = (Mutex::new(mistakes), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                loop {
                    let Some(file) = queue.lock().unwrap().pop() else { return };
                    let said = message(&file, &rustc);
                    if !is_expected(&file.with_extension("stderr"), &said) {
                        wrong.lock().unwrap().push(format!("{}\n{said}", file.display()));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} files have other messages now:\n\n{}", wrong.len(), wrong.join("\n"));
}

/// The message of the compiler for a file, which has a mistake.
fn message(file: &Path, rustc: &Rustc) -> String {
    let out = tempfile::tempdir().unwrap();
    let mut rustc = rustc.command(out.path());
    rustc.args(["--verbose", "--emit=metadata"]).arg(file.strip_prefix(root()).unwrap());
    let ran = rustc.current_dir(root()).output().unwrap();
    assert!(!ran.status.success(), "{} compiles", file.display());
    of_any_machine(&String::from_utf8(ran.stderr).unwrap())
}

/// Whether the file has this text. Where it is asked to, it writes the text first.
fn is_expected(file: &Path, said: &str) -> bool {
    if std::env::var_os(OVERWRITE).is_some() {
        fs::write(file, said).unwrap();
    }
    fs::read_to_string(file).is_ok_and(|expected| expected == said)
}

/// Returns the message without what differs between machines and with changes elsewhere: numbers of lines
/// outside of the mistake, and the place and the code of the standard library.
fn of_any_machine(said: &str) -> String {
    let mut text = String::new();
    let (mut is_elsewhere, mut is_of_rust) = (false, false);
    for line in said.lines().filter(|line| !COUNTS.iter().any(|start| line.starts_with(start))) {
        let code = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
        let number = if is_elsewhere { "" } else { line[..line.len() - code.len()].trim() };
        let line = if let Some(place) = code.strip_prefix("--> ").or(code.strip_prefix("::: ")) {
            is_elsewhere = !place.starts_with(FOLDER);
            let place = if is_elsewhere { place.split(':').next().unwrap() } else { place };
            let of_rust = place.split_once("/library/");
            is_of_rust = of_rust.is_some();
            format!("   {}{}", &code[..4], of_rust.map_or(place, |(_, place)| place))
        } else if is_of_rust && code.starts_with('|') {
            continue;
        } else if code.starts_with(['|', '=']) {
            format!("{number:>3} {code}")
        } else if line.starts_with(' ') {
            // A further line of a note.
            format!("            {}", line.trim_start())
        } else {
            line.to_owned()
        };
        text += &line;
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}
