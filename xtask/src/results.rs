//! Reads what test programs print: results, durations, and the output of tests that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Lines of a failed test that are repeated at the end. A panic and its seed are at the end of the output.
const OUTPUT_LINES_MAX: usize = 40;
/// Failed tests that are named at the end.
const NAMES_MAX: usize = 12;

/// The numbers of tests. Its text is the summary line.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Outcome {
    pub(crate) fn ok(&self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The results of the test programs of one or several commands.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) outcome: Outcome,
    /// How long each test took.
    pub(crate) durations: BTreeMap<String, Duration>,
    skipped: BTreeSet<String>,
    failures: BTreeMap<String, Failure>,
    program: Program,
}

/// A test that failed.
#[derive(Debug, Default)]
struct Failure {
    times: u32,
    /// The output of the last time.
    output: Vec<String>,
}

/// The test program that prints.
#[derive(Debug, Default)]
struct Program {
    began: Duration,
    /// The tests that ended, and when, in the order of their ends.
    ended: Vec<(String, Duration)>,
    /// The failed test whose output is being printed.
    printing: Option<String>,
}

impl Results {
    /// Returns the results of a run that ended before its tests.
    pub(crate) fn of_failure(why: &str) -> Self {
        let mut results = Self::default();
        results.outcome.failed = 1;
        results.failures.insert(why.to_owned(), Failure { times: 1, output: Vec::new() });
        results
    }

    /// Adds the results of a further command. The durations of a test are those of its last run.
    pub(crate) fn add(&mut self, other: Self) {
        self.outcome.passed += other.outcome.passed;
        self.outcome.failed += other.outcome.failed;
        self.outcome.skipped += other.outcome.skipped;
        self.durations.extend(other.durations);
        self.skipped.extend(other.skipped);
        for (name, Failure { times, output }) in other.failures {
            let failure = self.failures.entry(name).or_default();
            *failure = Failure { times: failure.times + times, output };
        }
    }

    /// Counts a test as skipped that was counted as passed: cargo cannot skip a test at run time.
    pub(crate) fn skip(&mut self, test: &str) {
        if self.skipped.insert(test.to_owned()) {
            self.outcome.passed = self.outcome.passed.saturating_sub(1);
            self.outcome.skipped += 1;
        }
    }

    /// Takes a line in. `at` is the time since any one moment, and `threads` how many tests run at a time.
    pub(crate) fn add_line(&mut self, line: &str, at: Duration, threads: usize) {
        let line = line.trim_end_matches('\n');
        if line.starts_with("test result: ") {
            self.add_counts(line);
            let program = std::mem::take(&mut self.program);
            self.durations.extend(program.durations(threads));
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.program.printing = Some(name.trim_end_matches(" - should panic").to_owned());
        } else if line == "failures:" {
            self.program.printing = None;
        } else if let Some(name) = &self.program.printing {
            // It may look like the lines of a test program.
            self.failures.entry(name.clone()).or_default().output.push(line.to_owned());
        } else if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            let name = name.trim_end_matches(" - should panic").to_owned();
            if result == "FAILED" {
                self.failures.entry(name.clone()).or_default().times += 1;
            }
            self.program.ended.push((name, at));
        } else if line.starts_with("running ") && line.ends_with(['t', 's']) && self.program.ended.is_empty()
        {
            self.program = Program { began: at, ..Program::default() };
        }
    }

    /// Adds the counts of a line `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add_counts(&mut self, line: &str) {
        for count in line.split(['.', ';']) {
            match *count.split_whitespace().collect::<Vec<_>>() {
                [n, "passed"] => self.outcome.passed += n.parse().unwrap_or(0),
                [n, "failed"] => self.outcome.failed += n.parse().unwrap_or(0),
                [n, "ignored"] => self.outcome.skipped += n.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    /// Returns whether the test of this name has failed.
    pub(crate) fn has_failed(&self, test: &str) -> bool {
        self.failures.contains_key(test)
    }

    /// Returns whether each failure is one of a test that has reported.
    pub(crate) fn is_complete(&self) -> bool {
        self.failures.keys().all(|test| self.durations.contains_key(test))
    }

    /// Returns whether the test of this name could not run.
    pub(crate) fn was_skipped(&self, test: &str) -> bool {
        self.skipped.contains(test)
    }

    /// Prints the failures and the summary line last. Returns whether all tests passed.
    pub(crate) fn print(&self) -> bool {
        println!("{}{}", self.failures_text(), self.outcome);
        self.outcome.ok()
    }

    /// The names of failed tests, and the end of the output of the first of them.
    fn failures_text(&self) -> String {
        let mut text = String::new();
        if let Some((name, failure)) = self.failures.iter().find(|(_, failure)| !failure.output.is_empty()) {
            text += &format!("\nthe output of {name}:\n");
            let output = without_stacks(&failure.output);
            for line in &output[output.len().saturating_sub(OUTPUT_LINES_MAX)..] {
                text += &format!("{line}\n");
            }
        }
        for (name, failure) in self.failures.iter().take(NAMES_MAX) {
            let times = if failure.times > 1 { format!(" ({} times)", failure.times) } else { String::new() };
            text += &format!("FAILED: {name}{times}\n");
        }
        if self.failures.len() > NAMES_MAX {
            text += &format!("and {} more, above\n", self.failures.len() - NAMES_MAX);
        }
        text
    }
}

/// Leaves empty lines and stacks out: a panic names its line.
fn without_stacks(output: &[String]) -> Vec<&str> {
    let mut is_stack = false;
    let of_panic = |line: &&str| {
        let ends = line.starts_with("note: Some details are omitted");
        let is_left_out = is_stack || ends || *line == "stack backtrace:" || line.is_empty();
        is_stack = (is_stack || *line == "stack backtrace:") && !ends;
        !is_left_out
    };
    output.iter().map(String::as_str).filter(of_panic).collect()
}

impl Program {
    /// Returns how long each test took. The test program prints only ends; but it starts its tests in the
    /// order of their names, a further one when one ends.
    fn durations(self, threads: usize) -> Vec<(String, Duration)> {
        let names: BTreeSet<_> = self.ended.iter().map(|(name, _)| name.clone()).collect();
        let starts = std::iter::repeat_n(self.began, threads).chain(self.ended.iter().map(|(_, end)| *end));
        let starts: BTreeMap<_, _> = names.into_iter().zip(starts).collect();
        let taken = |(name, end): (String, Duration)| {
            let start = starts[&name];
            (name, end.saturating_sub(start))
        };
        self.ended.into_iter().map(taken).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, threads: usize) -> Results {
        let mut results = Results::default();
        for (n, line) in text.lines().enumerate() {
            results.add_line(line, Duration::from_secs(n as u64), threads);
        }
        results
    }

    #[test]
    fn results_of_all_test_programs_are_summed() {
        let results = read(
            "running 3 tests\ntest a ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 5 filtered out; finished in 0.00s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n",
            1,
        );
        assert_eq!(results.outcome, Outcome { passed: 13, failed: 2, skipped: 1 });
        assert_eq!(results.outcome.to_string(), "13 passed, 2 failed, 1 skipped");
        assert!(!results.outcome.ok());
    }

    #[test]
    fn a_test_begins_when_an_earlier_one_ends() {
        let text = "running 4 tests\ntest b ... ok\ntest a ... ok\ntest d ... ok\ntest c ... ok\n\
            test result: ok. 4 passed; 0 failed; 0 ignored\n";
        let seconds: Vec<_> =
            read(text, 2).durations.into_iter().map(|(name, taken)| (name, taken.as_secs())).collect();
        // a and b begin at 0, c at 1, d at 2.
        let expected = [("a", 2), ("b", 1), ("c", 3), ("d", 1)];
        assert_eq!(seconds, expected.map(|(name, taken)| (name.to_owned(), taken)));
    }

    #[test]
    fn a_program_that_ends_before_its_tests_leaves_the_results_incomplete() {
        let mut results = read(
            "running 1 test\ntest a ... FAILED\n\
            test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n",
            1,
        );
        assert!(results.is_complete());
        results.add(Results::of_failure("cargo failed before all tests had reported"));
        assert!(!results.is_complete());
        assert!(!read("running 2 tests\ntest a ... FAILED\n", 1).is_complete());
    }

    #[test]
    fn stacks_are_left_out() {
        let lines = ["panicked", "stack backtrace:", "0: a", "note: Some details are omitted, run", "", "b"];
        assert_eq!(without_stacks(&lines.map(str::to_owned)), ["panicked", "b"]);
    }

    #[test]
    fn the_end_has_the_names_and_the_output_of_failed_tests() {
        let text = "running 2 tests\ntest a ... FAILED\ntest b - should panic ... ok\n\nfailures:\n\n\
            ---- a stdout ----\nseed 7\nthread 'a' panicked at x.rs:1:1:\nno order\n\n\nfailures:\n    a\n\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let said = read(text, 1).failures_text();
        assert_eq!(
            said,
            "\nthe output of a:\nseed 7\nthread 'a' panicked at x.rs:1:1:\nno order\nFAILED: a\n"
        );
        let mut twice = read(text, 1);
        twice.add(read(text, 1));
        assert!(twice.failures_text().ends_with("no order\nFAILED: a (2 times)\n"));
        let lines = "line\n".repeat(100);
        let many: String = (0..100).map(|n| format!("test t{n} ... FAILED\n")).collect();
        let text = format!("running 100 tests\n{many}failures:\n---- t1 stdout ----\n{lines}failures:\n");
        assert!(read(&text, 1).failures_text().lines().count() < 58);
    }
}
