//! Schedules as Amazon EventBridge writes them: `cron(…)` and `rate(…)`.
use std::time::Duration;

/// The longest pause of a `rate(…)`: a hundred years.
const RATE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The fields of `cron(…)`, each with its largest value.
const FIELDS: [(&str, u16); 6] =
    [("minutes", 59), ("hours", 23), ("day of month", 31), ("month", 12), ("day of week", 7), ("year", 2199)];
const DAY_OF_MONTH: usize = 2;
const DAY_OF_WEEK: usize = 4;

/// Translates what stands between the parentheses of `cron(…)` to seven fields, whose days of the week count
/// from Sunday as 1.
///
/// # Errors
/// The text of an error: it names the part to change.
pub(super) fn cron(text: &str) -> Result<String, String> {
    let fields: Vec<_> = text.split_whitespace().map(str::to_ascii_uppercase).collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "`cron(…)` has 6 fields, `cron(minutes hours day-of-month month day-of-week year)`, and not {}",
            fields.len()
        ));
    }
    let unset: Vec<_> = (0..FIELDS.len()).filter(|at| fields[*at].contains('?')).collect();
    if !matches!(unset[..], [DAY_OF_MONTH | DAY_OF_WEEK]) || fields[unset[0]] != "?" {
        return Err("`cron(…)` has `?` as its day of month or as its day of week, and exactly one `?`".into());
    }
    let mut translated = "0".to_owned();
    for (at, field) in fields.iter().enumerate() {
        let items: Result<Vec<_>, _> = field.split(',').map(|item| translate(at, item)).collect();
        translated.push(' ');
        translated.push_str(&items?.join(","));
    }
    Ok(translated)
}

/// Translates one item of a list.
fn translate(at: usize, item: &str) -> Result<String, String> {
    let (name, max) = FIELDS[at];
    if at == DAY_OF_WEEK {
        if item == "L" {
            return Ok(max.to_string());
        }
        let numbers = item.split(['/', '#']).next().unwrap_or_default().split('-');
        let is_day = |text: &str| text.parse().is_ok_and(|day: u16| !(1..=max).contains(&day));
        if numbers.into_iter().any(is_day) {
            return Err(format!(
                "its {name} {item:?} is none: 1 is Sunday, 7 is Saturday, or write SUN to SAT"
            ));
        }
    }
    Ok(match item.split_once('/') {
        Some((start, step)) if start != "*" && !start.contains('-') => format!("{start}-{max}/{step}"),
        _ if item == "?" => "*".to_owned(),
        _ => item.to_owned(),
    })
}

/// Reads what stands between the parentheses of `rate(…)`.
///
/// # Errors
/// The text of an error: it names the part to change.
pub(super) fn rate(text: &str) -> Result<Duration, String> {
    let parts: Vec<_> = text.split_whitespace().collect();
    let [number, unit] = parts[..] else {
        return Err("`rate(…)` has a number and a unit, such as `rate(5 minutes)`".into());
    };
    let number: u64 = number
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("the number of `rate(…)` is a whole one from 1 on, and not {number:?}"))?;
    let (seconds, unit_of_one) = match unit.strip_suffix('s').unwrap_or(unit) {
        "minute" => (60, "minute"),
        "hour" => (3600, "hour"),
        "day" => (24 * 3600, "day"),
        _ => return Err(format!("the unit of `rate(…)` is minutes, hours or days, and not {unit:?}")),
    };
    if (number == 1) != (unit == unit_of_one) {
        let right = if number == 1 { unit_of_one.to_owned() } else { format!("{unit_of_one}s") };
        return Err(format!("write `rate({number} {right})`"));
    }
    let period = Duration::from_secs(number.saturating_mul(seconds));
    if period > RATE_MAX {
        return Err("the pause of `rate(…)` is at most a hundred years".into());
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// t29
    #[test]
    fn fields_of_aws_become_seven_fields() {
        for (aws, fields) in [
            ("0 * * * ? *", "0 0 * * * * *"),
            ("0/15 * * * ? *", "0 0-59/15 * * * * *"),
            ("0 10 * * ? *", "0 0 10 * * * *"),
            ("15 12 * * ? *", "0 15 12 * * * *"),
            ("0 18 ? * MON-FRI *", "0 0 18 * * MON-FRI *"),
            ("0 8 1 * ? *", "0 0 8 1 * * *"),
            ("0/10 * ? * mon-fri *", "0 0-59/10 * * * MON-FRI *"),
            ("0/5 8-17 ? * MON-FRI *", "0 0-59/5 8-17 * * MON-FRI *"),
            ("0 9 ? * 2#1 *", "0 0 9 * * 2#1 *"),
            ("0 0 L * ? *", "0 0 0 L * * *"),
            ("0 0 3W * ? *", "0 0 0 3W * * *"),
            ("0 0 ? * L *", "0 0 0 * * 7 *"),
            ("0 0 ? * 6L *", "0 0 0 * * 6L *"),
            ("5,35 14 * * ? 2026/2", "0 5,35 14 * * * 2026-2199/2"),
            ("0/20,50 */2 ? JAN/3 1 *", "0 0-59/20,50 */2 * JAN-12/3 1 *"),
        ] {
            assert_eq!(cron(aws).as_deref(), Ok(fields), "{aws}");
        }
    }

    #[test]
    fn what_aws_refuses_is_refused_with_what_to_change() {
        for (aws, says) in [
            ("0 * * * ?", "6 fields"),
            ("0 * * * * *", "exactly one `?`"),
            ("0 * ? * ? *", "exactly one `?`"),
            ("? * * * * *", "exactly one `?`"),
            ("0 * 1? * * *", "exactly one `?`"),
            ("0 * ? * 0 *", "1 is Sunday"),
            ("0 * ? * 8 *", "1 is Sunday"),
            ("0 * ? * 1-8 *", "1 is Sunday"),
        ] {
            let refused = cron(aws).unwrap_err();
            assert!(refused.contains(says), "{aws}: {refused}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate("1 minute"), Ok(Duration::from_secs(60)));
        assert_eq!(rate("5 minutes"), Ok(Duration::from_secs(300)));
        assert_eq!(rate(" 12  hours "), Ok(Duration::from_secs(12 * 3600)));
        assert_eq!(rate("7 days"), Ok(Duration::from_secs(7 * 24 * 3600)));
        for (text, says) in [
            ("", "a number and a unit"),
            ("5", "a number and a unit"),
            ("0 minutes", "from 1 on"),
            ("-1 minutes", "from 1 on"),
            ("1.5 hours", "from 1 on"),
            ("1 minutes", "`rate(1 minute)`"),
            ("5 minute", "`rate(5 minutes)`"),
            ("5 weeks", "minutes, hours or days"),
            ("18446744073709551615 days", "a hundred years"),
        ] {
            let refused = rate(text).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
