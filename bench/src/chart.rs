//! A chart of the rows that have a target: how much of it each one reaches.
use crate::{
    row::{Row, number},
    targets::Bound,
};
use std::fmt::Write as _;

const ROW: f64 = 26.0;
const NAMES: f64 = 330.0;
/// The width of a bar that just reaches its target.
const REACHED: f64 = 300.0;
/// Longer bars are cut.
const SHARE_MAX: f64 = 1.4;

/// Draws a bar for each row with a target, and the spread as a line. All targets are at one place, whatever
/// their units: a time of half the target is as long as a rate of twice the target.
pub(crate) fn svg(rows: &[Row]) -> String {
    let with_target = rows.iter().filter_map(|row| Some((row, row.target?.bound)));
    let (mut bars, mut y) = (String::new(), 20.0);
    for (row, bound) in with_target {
        let share = |value: f64| {
            let share = match bound {
                Bound::AtLeast(least) => value / least,
                Bound::AtMost(most) => most / value.max(f64::MIN_POSITIVE),
            };
            share.clamp(0.0, SHARE_MAX) * REACHED
        };
        let color = match row.verdict() {
            "met" => "#2b8a3e",
            "missed" => "#c92a2a",
            _ => "#e67700",
        };
        let (width, middle) = (share(row.measured.median()), y + 9.0);
        let ends = [0.0, 1.0].map(|end| NAMES + share(row.measured.quantile(end)));
        let _ = write!(
            bars,
            r##"<text x="{}" y="{}" text-anchor="end">{}</text>
<rect x="{NAMES}" y="{y}" width="{width:.0}" height="18" fill="{color}"/>
<line x1="{:.0}" x2="{:.0}" y1="{middle}" y2="{middle}" stroke="#212529"/>
<text x="{:.0}" y="{}">{} ({bound})</text>
"##,
            NAMES - 8.0,
            y + 14.0,
            row.name,
            ends[0],
            ends[1],
            NAMES + REACHED * SHARE_MAX + 8.0,
            y + 14.0,
            number(row.measured.median()),
        );
        y += ROW;
    }
    let (width, target) = (NAMES + REACHED * SHARE_MAX + 140.0, NAMES + REACHED);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{:.0}"
 font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{target}" y="13" text-anchor="middle">target</text>
{bars}<line x1="{target}" x2="{target}" y1="16" y2="{y:.0}" stroke="#868e96" stroke-dasharray="4"/>
</svg>
"##,
        y + 8.0
    )
}
