//! Small charts.
use std::fmt::Write as _;

const WIDTH: f64 = 160.0;
const HEIGHT: f64 = 36.0;

/// A line through values, as the inner part of a SVG image of 160 by 36 units. Empty with fewer than two
/// values.
pub(crate) fn line(values: &[f64]) -> String {
    if values.len() < 2 {
        return String::new();
    }
    let most = values.iter().copied().fold(1.0, f64::max);
    let step = WIDTH / (values.len() - 1) as f64;
    let mut points = String::new();
    for (nth, value) in values.iter().enumerate() {
        let (x, y) = (nth as f64 * step, HEIGHT - 2.0 - value.max(0.0) / most * (HEIGHT - 4.0));
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    points.truncate(points.trim_end().len());
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_side_to_side() {
        assert_eq!(line(&[]), "");
        assert_eq!(line(&[3.0]), "");
        assert_eq!(line(&[0.0, 5.0, 10.0]), "0.0,34.0 80.0,18.0 160.0,2.0");
        assert_eq!(line(&[0.0, 0.0]), "0.0,34.0 160.0,34.0");
    }
}
