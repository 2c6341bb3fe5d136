use super::*;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// The next times after one, in UTC.
fn times(schedule: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let mut schedule = Schedule::parse(schedule).unwrap_or_else(|e| panic!("{schedule}: {e}"));
    schedule.zone = Zone::named(zone).unwrap();
    let next = |after: &Timestamp| schedule.next(*after);
    std::iter::successors(next(&at(after)), next).take(count).map(|at| at.to_string()).collect()
}

/// R14, t29
#[test]
fn schedules_of_aws() {
    // 2026-01-01 is a Thursday.
    for (schedule, first, second) in [
        ("cron(0 * * * ? *)", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"),
        ("cron(0/15 * * * ? *)", "2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"),
        ("cron(0 10 * * ? *)", "2026-01-01T10:00:00Z", "2026-01-02T10:00:00Z"),
        ("cron(0 18 ? * MON-FRI *)", "2026-01-01T18:00:00Z", "2026-01-02T18:00:00Z"),
        ("cron(0 8 1 * ? *)", "2026-01-01T08:00:00Z", "2026-02-01T08:00:00Z"),
        ("cron(0 9 ? * 1 *)", "2026-01-04T09:00:00Z", "2026-01-11T09:00:00Z"),
        ("cron(0 9 ? * 7 *)", "2026-01-03T09:00:00Z", "2026-01-10T09:00:00Z"),
        ("cron(0 9 ? * L *)", "2026-01-03T09:00:00Z", "2026-01-10T09:00:00Z"),
        ("cron(0 9 ? * 2#1 *)", "2026-01-05T09:00:00Z", "2026-02-02T09:00:00Z"),
        ("cron(0 9 ? * 6L *)", "2026-01-30T09:00:00Z", "2026-02-27T09:00:00Z"),
        ("cron(0 9 L * ? *)", "2026-01-31T09:00:00Z", "2026-02-28T09:00:00Z"),
        ("cron(0 9 3W * ? *)", "2026-01-02T09:00:00Z", "2026-02-03T09:00:00Z"),
        ("cron(0 0 1 1 ? 2027/2)", "2027-01-01T00:00:00Z", "2029-01-01T00:00:00Z"),
        ("rate(1 minute)", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"),
        ("rate(5 hours)", "2026-01-01T04:00:00Z", "2026-01-01T09:00:00Z"),
        ("rate(1 day)", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"),
    ] {
        assert_eq!(times(schedule, "UTC", "2026-01-01T00:00:00Z", 2), [first, second], "{schedule}");
    }
}

/// R14
#[test]
fn schedules_of_five_six_and_seven_fields() {
    for (schedule, first, second) in [
        ("30 2 * * *", "2026-01-01T02:30:00Z", "2026-01-02T02:30:00Z"),
        ("*/20 * * * *", "2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z"),
        ("0 9 * * 1", "2026-01-05T09:00:00Z", "2026-01-12T09:00:00Z"),
        ("0 9 * * 0,7", "2026-01-04T09:00:00Z", "2026-01-11T09:00:00Z"),
        ("0 9 13 * FRI", "2026-01-02T09:00:00Z", "2026-01-09T09:00:00Z"),
        ("15 30 2 * * *", "2026-01-01T02:30:15Z", "2026-01-02T02:30:15Z"),
        ("*/30 * * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"),
        ("0 0 0 29 2 * *", "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"),
        ("0 0 0 1 1 * 2030,2040", "2030-01-01T00:00:00Z", "2040-01-01T00:00:00Z"),
    ] {
        assert_eq!(times(schedule, "UTC", "2026-01-01T00:00:00Z", 2), [first, second], "{schedule}");
    }
    assert_eq!(times("0 0 0 1 1 * 2026", "UTC", "2026-01-01T00:00:00Z", 2), [""; 0]);
    assert_eq!(times("* * * * * *", "UTC", "2026-01-01T00:00:00.5Z", 1), ["2026-01-01T00:00:01Z"]);
}

#[test]
fn a_bad_schedule_is_refused_with_what_to_change() {
    for (schedule, says) in [
        ("", "5 fields"),
        ("every day", "5 fields"),
        ("@daily", "5 fields"),
        ("0 * * *", "5 fields"),
        ("0 * * * * * * *", "5 fields"),
        ("0 * * * ? *", "inside of `cron(…)`"),
        ("0/15 * * * *", "`*/15` or `0-59/15`"),
        ("0 9 * FOO MON", "its month \"FOO\""),
        ("60 * * * *", "its minute \"60\""),
        ("0 0 30 2 *", "no time at all"),
        ("0 0 0 1 1 * 1950", "no time at all"),
        ("cron(0 * * * * *)", "exactly one `?`"),
        ("cron(0 25 * * ? *)", "its hour \"25\""),
        ("rate(1 minutes)", "`rate(1 minute)`"),
        (&"0".repeat(300), "255 bytes"),
    ] {
        let refused = Schedule::parse(schedule).unwrap_err();
        assert!(refused.contains(says), "{schedule}: {refused}");
    }
}

/// t29: in Berlin the hour from 02:00 is missing on 2026-03-29.
#[test]
fn in_a_gap_a_fixed_time_is_due_at_its_end_and_intervals_go_on() {
    for (schedule, expected) in [
        ("30 2 * * *", ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("cron(30 2 * * ? *)", ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("0 2,14 * * *", ["2026-03-28T13:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"]),
        // Both times are the end of the gap.
        ("0,30 2 * * *", ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
        ("0 2,3 * * *", ["2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
    ] {
        let found = times(schedule, "Europe/Berlin", "2026-03-28T01:10:00Z", 3);
        assert_eq!(found, expected, "{schedule}");
    }
    let from = "2026-03-28T23:30:00Z";
    let hourly = ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"];
    for schedule in ["0 * * * *", "cron(0 * * * ? *)", "rate(1 hour)", "0 */1 * * *"] {
        assert_eq!(times(schedule, "Europe/Berlin", from, 3), hourly, "{schedule}");
    }
    // Its hour does not come.
    let quarters = times("*/30 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", 1);
    assert_eq!(quarters, ["2026-03-30T00:00:00Z"]);
}

/// t29: in Berlin the hour from 02:00 comes twice on 2026-10-25.
#[test]
fn in_a_fold_a_fixed_time_is_due_once_and_intervals_go_on() {
    for (schedule, expected) in [
        ("30 2 * * *", ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("cron(30 2 * * ? *)", ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("0 2,14 * * *", ["2026-10-24T12:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T13:00:00Z"]),
    ] {
        let found = times(schedule, "Europe/Berlin", "2026-10-24T00:10:00Z", 3);
        assert_eq!(found, expected, "{schedule}");
    }
    // In the second half nothing of the first comes again.
    let later = times("0,30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1);
    assert_eq!(later, ["2026-10-26T01:00:00Z"]);
    let hourly = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"];
    for schedule in ["0 * * * *", "cron(0 * * * ? *)", "rate(1 hour)", "0 */1 * * *"] {
        assert_eq!(times(schedule, "Europe/Berlin", "2026-10-24T23:30:00Z", 3), hourly, "{schedule}");
    }
    let halves = times("*/30 2 * * *", "Europe/Berlin", "2026-10-25T00:10:00Z", 3);
    assert_eq!(halves, ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"]);
}

/// Each local date has its run once, in a year, in zones of both hemispheres and with odd gaps.
#[test]
fn a_daily_time_is_due_once_on_each_date() {
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC"] {
        for hour in 0..24 {
            let mut schedule = Schedule::parse(&format!("15 {hour} * * *")).unwrap();
            schedule.zone = Zone::named(zone).unwrap();
            let (end, mut after) = (at("2027-01-02T00:00:00Z"), at("2026-01-02T00:00:00Z"));
            let mut dates = Vec::new();
            while let Some(due) = schedule.next(after).filter(|due| *due < end) {
                assert!(due > after);
                let clock = croner::CronDateTime::to_civil(&schedule.zone.wall_clock(due).unwrap());
                dates.push((clock.year(), clock.month(), clock.day()));
                after = due;
            }
            let all = dates.len();
            dates.dedup();
            assert_eq!((all, dates.len()), (365, 365), "{zone} {hour}");
        }
    }
}
