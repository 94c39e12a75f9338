//! Days and months across daylight saving, leap years and every bundled time zone.

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use proptest::prelude::*;
use tidegate_algorithms::limit::Calendar;
use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::time::{SECOND, Wall};

fn calendar(period: Period, zone: &str) -> Calendar {
    Calendar { limit: 1, period, zone: TimeZone::get(zone).unwrap() }
}

/// The end of the period at a civil time (its first occurrence), as an RFC 9557 text.
fn end(period: Period, zone: &str, at: &str) -> String {
    let calendar = calendar(period, zone);
    let at: civil::DateTime = at.parse().unwrap();
    let at = at.to_zoned(calendar.zone.clone()).unwrap().timestamp();
    let end = calendar.end_of_period(Wall(u64::try_from(at.as_second()).unwrap() * SECOND));
    Timestamp::from_nanosecond(i128::from(end.0)).unwrap().to_zoned(calendar.zone).to_string()
}

#[test]
fn periods_end_at_midnight_where_the_customer_lives() {
    use Period::{Day, Month};
    for (period, zone, at, expected) in [
        (Day, "UTC", "2026-11-20T23:59:59", "2026-11-21T00:00:00+00:00[UTC]"),
        (Day, "UTC", "2026-11-21T00:00:00", "2026-11-22T00:00:00+00:00[UTC]"),
        // Daylight saving: days of 23 and 25 hours.
        (Day, "Europe/Berlin", "2026-03-29T00:00:00", "2026-03-30T00:00:00+02:00[Europe/Berlin]"),
        (Day, "Europe/Berlin", "2026-10-25T00:00:00", "2026-10-26T00:00:00+01:00[Europe/Berlin]"),
        (Day, "America/New_York", "2026-03-08T12:00:00", "2026-03-09T00:00:00-04:00[America/New_York]"),
        // A shift of half an hour.
        (Day, "Australia/Lord_Howe", "2026-04-05T01:00:00", "2026-04-06T00:00:00+10:30[Australia/Lord_Howe]"),
        // Midnight does not exist: the day starts at 01:00.
        (Day, "Africa/Cairo", "2026-04-23T12:00:00", "2026-04-24T01:00:00+03:00[Africa/Cairo]"),
        // Midnight comes twice: the first counts.
        (Day, "America/Havana", "2026-10-31T12:00:00", "2026-11-01T00:00:00-04:00[America/Havana]"),
        // A day that did not exist.
        (Day, "Pacific/Apia", "2011-12-29T12:00:00", "2011-12-31T00:00:00+14:00[Pacific/Apia]"),
        (Month, "UTC", "2026-01-31T12:00:00", "2026-02-01T00:00:00+00:00[UTC]"),
        (Month, "UTC", "2026-12-31T23:59:59", "2027-01-01T00:00:00+00:00[UTC]"),
        (Month, "UTC", "2028-02-29T12:00:00", "2028-03-01T00:00:00+00:00[UTC]"),
        (Month, "UTC", "2100-02-28T23:59:59", "2100-03-01T00:00:00+00:00[UTC]"),
        (Month, "Europe/Berlin", "2026-03-01T00:00:00", "2026-04-01T00:00:00+02:00[Europe/Berlin]"),
        (Month, "Pacific/Kiritimati", "2026-06-30T00:00:00", "2026-07-01T00:00:00+14:00[Pacific/Kiritimati]"),
    ] {
        assert_eq!(end(period, zone, at), expected, "{period:?} of {zone} at {at}");
    }
}

#[test]
fn clocks_set_back_over_midnight_do_not_end_a_period_in_the_past() {
    // St. John's, 2006-10-29: at 00:01 the clock went back to 23:01 of the day before.
    let calendar = calendar(Period::Day, "America/St_Johns");
    let back: Timestamp = "2006-10-29T02:31:00Z".parse().unwrap();
    for minutes in -30..=90_i64 {
        let wall = Wall(u64::try_from(back.as_second() + minutes * 60).unwrap() * SECOND);
        let end = calendar.end_of_period(wall);
        assert!(end > wall, "at {minutes} minutes");
    }
}

proptest! {
    #[test]
    fn a_period_ends_after_now_and_the_next_begins_there(
        zone in prop::sample::select(zones()), day in any::<bool>(), second in 0..4_102_444_800_u64,
    ) {
        let period = if day { Period::Day } else { Period::Month };
        let calendar = calendar(period, &zone);
        let wall = Wall(second * SECOND + SECOND / 2);
        let end = calendar.end_of_period(wall);
        let hours = if day { 49 } else { 31 * 24 + 25 };
        prop_assert!(end > wall && end.0 - wall.0 <= hours * 3_600 * SECOND);
        let date = |wall: u64| {
            let date = crate::limits::oracle::zoned(&calendar, wall).date();
            if day { date } else { date.first_of_month() }
        };
        prop_assert_eq!(date(end.0 - 1), date(wall.0), "still the same period");
        prop_assert!(date(end.0) > date(wall.0), "the next period");
    }
}

#[test]
fn the_time_zone_database_is_bundled() {
    assert!(!jiff::tz::db().is_definitively_empty());
    assert!(zones().len() > 400, "{} zones", zones().len());
    assert!(format!("{:?}", jiff::tz::db()).contains("undled"), "{:?}", jiff::tz::db());
}

fn zones() -> Vec<String> {
    jiff::tz::db().available().map(|name| name.to_string()).collect()
}
