//! The times of a run: its steps, areas and slowest tests, and how busy the machine was.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

/// Tests that are listed.
const SLOWEST: usize = 20;

/// A step that ended.
#[derive(Debug)]
struct Step {
    name: &'static str,
    taken: Duration,
    /// The share of all cores that worked, where the system says it.
    busy: Option<f64>,
}

/// The steps of a run, in their order.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Step>);

impl Table {
    /// Runs a step and says how long it took.
    pub(crate) fn step<T>(&mut self, name: &'static str, run: impl FnOnce() -> T) -> T {
        println!("\n== {name}");
        let (start, before) = (Instant::now(), CpuTime::read());
        let result = run();
        let busy = before.zip(CpuTime::read()).and_then(|(before, after)| after.busy_since(&before));
        let taken = start.elapsed();
        println!("== {name}: {:.1} s", taken.as_secs_f64());
        self.0.push(Step { name, taken, busy });
        result
    }

    /// The table, with the durations of tests.
    pub(crate) fn text(&self, tests: &BTreeMap<String, Duration>) -> String {
        let mut text = format!("\n{:<24}{:>10}{:>14}\n", "step", "seconds", "cores busy");
        for Step { name, taken, busy } in &self.0 {
            let busy = busy.map_or("?".to_owned(), |busy| format!("{:.0} %", busy * 100.0));
            let _ = writeln!(text, "{name:<24}{:>10.1}{busy:>14}", taken.as_secs_f64());
        }
        let all: Duration = self.0.iter().map(|step| step.taken).sum();
        let _ = writeln!(text, "{:<24}{:>10.1}", "all", all.as_secs_f64());
        if tests.is_empty() {
            return text;
        }
        let mut areas = BTreeMap::<_, (usize, Duration)>::new();
        for (name, taken) in tests {
            let area = areas.entry(name.split("::").next().unwrap_or_default()).or_default();
            *area = (area.0 + 1, area.1 + *taken);
        }
        let mut areas: Vec<_> = areas.into_iter().collect();
        areas.sort_by_key(|(_, (_, taken))| std::cmp::Reverse(*taken));
        let _ = writeln!(text, "\n{:<24}{:>10}{:>14}", "area", "tests", "seconds");
        for (area, (count, taken)) in areas.iter().take(SLOWEST) {
            let _ = writeln!(text, "{area:<24}{count:>10}{:>14.1}", taken.as_secs_f64());
        }
        let all: Duration = tests.values().sum();
        let _ = writeln!(text, "{:<24}{:>10}{:>14.1}", "all", tests.len(), all.as_secs_f64());
        let mut slowest: Vec<_> = tests.iter().collect();
        slowest.sort_by_key(|(_, taken)| std::cmp::Reverse(*taken));
        let _ = writeln!(text, "\n{:>8}  the slowest tests", "seconds");
        for (name, taken) in slowest.iter().take(SLOWEST) {
            let _ = writeln!(text, "{:>8.1}  {name}", taken.as_secs_f64());
        }
        text
    }
}

/// The time that all cores have spent since the machine started, in ticks of the kernel.
#[derive(Debug, PartialEq)]
struct CpuTime {
    all: u64,
    idle: u64,
}

impl CpuTime {
    /// Returns nothing on other systems than Linux.
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads `cpu user nice system idle iowait irq softirq steal guest guest_nice`. The last two are part of
    /// the first two.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).take(8).collect();
        Some(Self { all: ticks.iter().sum(), idle: ticks.get(3)? + ticks.get(4)? })
    }

    fn busy_since(&self, before: &Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(1.0 - self.idle.saturating_sub(before.idle) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_is_idle_and_guests_are_counted_once() {
        let before = CpuTime::parse("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1\n").unwrap();
        assert_eq!(before, CpuTime { all: 100, idle: 80 });
        let after = CpuTime::parse("cpu  60 0 10 90 40 0 0 0 5 0\n").unwrap();
        assert_eq!(after.busy_since(&before), Some(0.5));
        assert_eq!(before.busy_since(&before), None);
        assert_eq!(CpuTime::parse("intr 1"), None);
    }

    #[test]
    fn tests_are_summed_by_area_and_the_slowest_come_first() {
        let table = Table(vec![Step { name: "fmt", taken: Duration::from_secs(2), busy: Some(0.25) }]);
        let tests = [("a::x", 1), ("b::y", 5), ("a::z", 3)];
        let tests = tests.map(|(name, taken)| (name.to_owned(), Duration::from_secs(taken)));
        let text = table.text(&tests.into());
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = text.lines().map(words).collect();
        for line in ["fmt 2.0 25 %", "a 2 4.0", "b 1 5.0", "all 3 9.0"] {
            assert!(lines.iter().any(|other| other == line), "{line} in\n{text}");
        }
        assert!(lines.ends_with(&["5.0 b::y", "3.0 a::z", "1.0 a::x"].map(str::to_owned)), "{text}");
    }
}
