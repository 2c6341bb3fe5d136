//! The median, the minimum and the maximum of several runs.
use std::fmt;

pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }

    /// Returns the value below which this share of the values lies.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let at = (self.0.len() as f64 * share) as usize;
        self.0.get(at.min(self.0.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Prints the median, and the smallest and the largest value.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(
            f,
            "{:.digits$} ({:.digits$} to {:.digits$})",
            self.median(),
            self.quantile(0.0),
            self.quantile(1.0)
        )
    }
}
