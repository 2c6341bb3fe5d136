//! The measurements of a run beside the targets: a table, JSON and a chart.
use crate::{
    chart,
    failure::Failure,
    row::{Row, number},
    spread::Spread,
    targets,
};
use serde::Serialize;
use std::{collections::HashMap, fs, path::PathBuf};

/// The measurements of a run, in their order.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    json: Option<PathBuf>,
    chart: Option<PathBuf>,
    /// The medians of another run.
    other: HashMap<String, f64>,
}

/// A row in JSON.
#[derive(Serialize)]
struct RowText<'a> {
    name: &'a str,
    median: f64,
    values: &'a [f64],
    before: Option<f64>,
    target: Option<String>,
    verdict: &'a str,
}

impl Report {
    /// Reads `--json FILE`, `--chart FILE` and `--compare FILE`. Also returns the other arguments.
    ///
    /// # Errors
    /// A file is not named, or the one to compare with cannot be read.
    pub(crate) fn of_arguments(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<(Self, Vec<String>), Failure> {
        let (mut report, mut others) = (Self::default(), Vec::new());
        while let Some(argument) = arguments.next() {
            let mut file = || {
                let file = arguments.next().ok_or(format!("{argument} needs the name of a file"))?;
                Ok::<_, Failure>(PathBuf::from(file))
            };
            match argument.as_str() {
                "--json" => report.json = Some(file()?),
                "--chart" => report.chart = Some(file()?),
                "--compare" => report.other = medians(&fs::read_to_string(file()?)?)?,
                _ => others.push(argument),
            }
        }
        Ok((report, others))
    }

    /// Adds a measurement. The files hold all that was measured, if a later benchmark fails.
    pub(crate) fn add(&mut self, name: &'static str, measured: Spread) -> Result<(), Failure> {
        println!("{name:<46} {measured}");
        self.rows.push(Row { name, measured, target: targets::of(name) });
        if let Some(file) = &self.json {
            fs::write(file, self.to_json()?)?;
        }
        if let Some(file) = &self.chart {
            fs::write(file, chart::svg(&self.rows))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Result<String, Failure> {
        let rows = self.rows.iter().map(|row| RowText {
            name: row.name,
            median: row.measured.median(),
            values: row.measured.values(),
            before: row.target.and_then(|target| target.before),
            target: row.target.map(|target| target.bound.to_string()),
            verdict: row.verdict(),
        });
        Ok(serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?)
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let other = if self.other.is_empty() { "" } else { "other run" };
        let head = ["", "median", "smallest", "largest", "before", "target", "verdict", other];
        print(head.map(str::to_owned));
        for row in &self.rows {
            let some = |value: Option<f64>| value.map(number).unwrap_or_default();
            print([
                row.name.to_owned(),
                number(row.measured.median()),
                number(row.measured.quantile(0.0)),
                number(row.measured.quantile(1.0)),
                some(row.target.and_then(|target| target.before)),
                row.target.map(|target| target.bound.to_string()).unwrap_or_default(),
                row.verdict().to_owned(),
                some(self.other.get(row.name).copied()),
            ]);
        }
    }
}

/// Reads the medians of a run from its JSON, by the names of their rows.
fn medians(json: &str) -> Result<HashMap<String, f64>, Failure> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(json)?;
    let median = |row: &serde_json::Value| Some((row["name"].as_str()?.to_owned(), row["median"].as_f64()?));
    Ok(rows.iter().filter_map(median).collect())
}

fn print([name, median, smallest, largest, before, target, verdict, other]: [String; 8]) {
    let line = format!(
        "{name:<46} {median:>9} {smallest:>9} {largest:>9} {before:>7} {target:>7}  {verdict:<14} {other:>9}"
    );
    println!("{}", line.trim_end());
}
