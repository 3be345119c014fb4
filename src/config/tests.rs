use super::*;
use std::panic::catch_unwind;

const YEAR: u64 = 31_557_600;

type Set = fn(ConfigBuilder, Duration) -> ConfigBuilder;
const DURATIONS: [(&str, Set); 5] = [
    ("lease_duration", ConfigBuilder::lease_duration),
    ("renew_interval", ConfigBuilder::renew_interval),
    ("retry_period", ConfigBuilder::retry_period),
    ("operation_timeout", ConfigBuilder::operation_timeout),
    ("safety_margin", ConfigBuilder::safety_margin),
];

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn refused(builder: ConfigBuilder) -> ConfigError {
    let shown = format!("{builder:?}");
    assert!(shown.len() < 1_000, "a builder prints {} bytes", shown.len());
    let error = catch_unwind(|| builder.build()).expect("build never panics").expect_err(&shown);
    let text = error.to_string();
    assert!(text.starts_with(error.field()), "{text}");
    assert!(text.len() < 500, "an error of {} bytes", text.len());
    error
}

#[test]
fn the_defaults_are_those_of_the_manual() {
    let config = Config::builder("job").build().unwrap();
    assert_eq!(config.name(), "job");
    assert_eq!(config.lease_duration(), secs(15));
    assert_eq!(config.renew_interval(), secs(5));
    assert_eq!(config.retry_period(), secs(3));
    assert_eq!(config.operation_timeout(), secs(3));
    assert_eq!(config.safety_margin(), millis(1500));
    assert_eq!(config.term_duration(), millis(13_500));
    assert_eq!(config.retry_delay(), millis(1250));
    assert!(config.label().ends_with(&format!("-{}", std::process::id())));
    assert_eq!(config.payload(), None);
    assert!(config.release_on_exit());
    assert_eq!(config.min_fence(), 0);
    assert_eq!(config.clock_trust(), ClockTrust::Database);
    assert_eq!(config.takeover_delay(), Duration::ZERO);
    assert!(!config.observer());
}

#[test]
fn every_setting_arrives() {
    let config = Config::builder("job")
        .lease_duration(secs(60))
        .renew_interval(secs(7))
        .retry_period(secs(8))
        .operation_timeout(secs(9))
        .safety_margin(secs(10))
        .label("l")
        .payload(*b"p")
        .release_on_exit(false)
        .min_fence(11)
        .clock_trust(ClockTrust::Strict)
        .takeover_delay(secs(12))
        .observer(true)
        .build()
        .unwrap();
    assert_eq!(config.lease_duration(), secs(60));
    assert_eq!(config.renew_interval(), secs(7));
    assert_eq!(config.retry_period(), secs(8));
    assert_eq!(config.operation_timeout(), secs(9));
    assert_eq!(config.safety_margin(), secs(10));
    assert_eq!(config.label(), "l");
    assert_eq!(config.payload(), Some(&b"p"[..]));
    assert!(!config.release_on_exit());
    assert_eq!(config.min_fence(), 11);
    assert_eq!(config.clock_trust(), ClockTrust::Strict);
    assert_eq!(config.takeover_delay(), secs(12));
    assert!(config.observer());
}

#[test]
fn a_takeover_delay_may_be_anything_up_to_the_longest_lease() {
    let delayed = |delay| Config::builder("job").takeover_delay(delay);
    for delay in [Duration::ZERO, Duration::from_nanos(1), secs(3_600), Config::MAX_LEASE_DURATION] {
        assert_eq!(delayed(delay).build().unwrap().takeover_delay(), delay);
    }
    for delay in [Config::MAX_LEASE_DURATION + Duration::from_nanos(1), Duration::MAX] {
        let error = refused(delayed(delay));
        assert_eq!(error.field(), "takeover_delay");
        assert!(error.to_string().contains(&format!("{delay:?}")), "{error}");
    }
    let shown = format!("{:?} {:?}", delayed(secs(77)).observer(true), delayed(secs(77)).build().unwrap());
    assert_eq!(shown.matches("takeover_delay: 77s").count(), 2, "{shown}");
    assert!(shown.contains("observer: true") && shown.contains("observer: false"), "{shown}");
}

#[test]
fn the_margin_defaults_to_a_tenth_and_at_least_a_second() {
    let margin = |lease| {
        let fast = Config::builder("job").renew_interval(millis(100)).operation_timeout(millis(100));
        fast.lease_duration(lease).build().unwrap().safety_margin()
    };
    assert_eq!(margin(secs(3)), secs(1));
    assert_eq!(margin(secs(10)), secs(1));
    assert_eq!(margin(secs(11)), millis(1100));
    assert_eq!(margin(Config::MAX_LEASE_DURATION), Config::MAX_LEASE_DURATION / 10);
}

#[test]
fn a_bad_duration_is_refused_by_name_b28() {
    let bad = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(1),
        Config::MIN_DURATION - Duration::from_nanos(1),
        Config::MAX_LEASE_DURATION + Duration::from_nanos(1),
        secs(300_000 * YEAR),
        secs(u64::MAX),
        Duration::MAX,
    ];
    for (field, set) in DURATIONS {
        for duration in bad {
            let error = refused(set(Config::builder("job"), duration));
            assert_eq!(error.field(), field, "{duration:?}: {error}");
            assert_eq!(format!("{error:?}"), error.to_string(), "readable where a main returns it");
            assert!(error.to_string().contains(&format!("{duration:?}")), "{error}");
        }
    }
    // All of them at once, and every pair: no sum overflows.
    for (_, first) in DURATIONS {
        for (_, second) in DURATIONS {
            for a in bad {
                for b in bad {
                    let _ = refused(second(first(Config::builder("job"), a), b));
                }
            }
        }
    }
    let all = DURATIONS.iter().fold(Config::builder("job"), |b, (_, set)| set(b, Duration::MAX));
    let _ = refused(all);
}

#[test]
fn sums_that_do_not_fit_are_refused_with_both_sums_b28() {
    // The field that the error must name, for lease, renew, retry, operation timeout and margin in ms.
    let table = [
        ("lease_duration", [10_000, 5_000, 1_000, 3_000, 1_000]),
        ("renew_interval", [10_000, 10_000, 1_000, 1_000, 1_000]),
        ("renew_interval", [10_000, 20_000, 1_000, 1_000, 1_000]),
        ("renew_interval", [10_000, 9_000, 1_000, 1, 1_000]),
        ("operation_timeout", [10_000, 1_000, 1_000, 4_500, 1_000]),
        ("operation_timeout", [10_000, 1_000, 1_000, 60_000, 1_000]),
        ("safety_margin", [10_000, 1_000, 1_000, 1_000, 10_000]),
        ("safety_margin", [10_000, 1_000, 1_000, 1_000, 11_000]),
        ("safety_margin", [10_000, 1_000, 1_000, 1_000, 499]),
        ("lease_duration", [10_000, 1_000, 1_000, 1_000, 7_000]),
    ];
    for (field, values) in table {
        let builder =
            DURATIONS.iter().zip(values).fold(Config::builder("job"), |b, ((_, set), ms)| set(b, millis(ms)));
        let error = refused(builder);
        assert_eq!(error.field(), field, "{values:?}: {error}");
    }
    let tight =
        Config::builder("job").lease_duration(secs(10)).renew_interval(secs(5)).safety_margin(secs(1));
    let text = refused(tight).to_string();
    for part in [
        "5s + 2 * operation_timeout 3s + retry_delay 1.25s = 12.25s",
        "10s - safety_margin 1s = 9s",
        "by 3.25s",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn the_boundaries_themselves_are_accepted() {
    // 1 s + 2 * 0.4 s + 0.25 s = 2.05 s = 3.05 s - 1 s.
    let exact = Config::builder("job").renew_interval(secs(1)).operation_timeout(millis(400));
    assert!(exact.clone().lease_duration(millis(3050)).build().is_ok());
    // The smallest step of the lease is a microsecond, and what is below that is cut off first.
    assert!(exact.clone().lease_duration(millis(3050) - Duration::from_micros(1)).build().is_err());
    assert!(exact.clone().lease_duration(millis(3050) - Duration::from_nanos(1)).build().is_err());
    assert!(exact.clone().lease_duration(millis(3050) + Duration::from_nanos(1)).build().is_ok());
    assert!(exact.clone().lease_duration(secs(20)).safety_margin(secs(1)).build().is_ok());
    let below = secs(1) - Duration::from_nanos(1);
    assert_eq!(refused(exact.lease_duration(secs(20)).safety_margin(below)).field(), "safety_margin");
    let shortest = Config::builder("job").renew_interval(millis(1)).operation_timeout(millis(1));
    assert!(
        shortest.retry_period(millis(1)).lease_duration(millis(60)).safety_margin(millis(3)).build().is_ok()
    );
}

#[test]
fn lease_durations_are_whole_microseconds_b28() {
    let length = |lease| Config::builder("job").lease_duration(lease).build().unwrap().lease_duration();
    assert_eq!(length(secs(30 * 86_400)), secs(30 * 86_400));
    assert_eq!(length(Config::MAX_LEASE_DURATION), secs(31 * 86_400));
    assert_eq!(length(Duration::new(15, 234_567_000)), Duration::new(15, 234_567_000));
    assert_eq!(length(Duration::new(15, 234_567_999)), Duration::new(15, 234_567_000));
}

#[test]
fn a_bad_text_is_refused_by_name_b16() {
    let long = "a".repeat(300_000);
    for name in ["", "\0", "a\0b", &"n".repeat(256), &"é".repeat(128), &"日".repeat(100_000), &long] {
        let error = refused(Config::builder(name));
        assert_eq!(error.field(), "name", "{error}");
    }
    for label in ["", "\0", "a\0b", &"l".repeat(129), &"é".repeat(65), &long] {
        let error = refused(Config::builder("job").label(label));
        assert_eq!(error.field(), "label", "{error}");
    }
    assert!(refused(Config::builder(long)).to_string().contains("300000 bytes; shorten it to 255"));
}

#[test]
fn odd_texts_are_kept_as_they_are_b16() {
    let names =
        [" lead ", "x'); DROP TABLE leader_election;--", "日本語", "\u{e9}", "e\u{301}", "%s {} \n", "\u{7}"];
    for name in names.map(str::to_owned).into_iter().chain(["n".repeat(255)]) {
        assert_eq!(Config::builder(name.clone()).build().unwrap().name(), name);
    }
    for label in names.map(str::to_owned).into_iter().chain(["l".repeat(128)]) {
        assert_eq!(Config::builder("job").label(label.clone()).build().unwrap().label(), label);
    }
}

#[test]
fn payloads_and_fences_have_limits() {
    let largest = vec![0; Config::MAX_PAYLOAD_LEN];
    assert_eq!(
        Config::builder("job").payload(largest.clone()).build().unwrap().payload(),
        Some(&largest[..])
    );
    assert_eq!(Config::builder("job").payload("").build().unwrap().payload(), Some(&[][..]), "not none");
    let larger = Config::builder("job").payload(vec![0; Config::MAX_PAYLOAD_LEN + 1]);
    assert_eq!(refused(larger).field(), "payload");
    for fence in [-1, i64::MIN, Config::MAX_MIN_FENCE + 1, i64::MAX] {
        assert_eq!(refused(Config::builder("job").min_fence(fence)).field(), "min_fence");
    }
    let highest = Config::builder("job").min_fence(Config::MAX_MIN_FENCE).build().unwrap();
    for timeline in [None, Some(1), Some(2), Some(u32::MAX)] {
        assert!(crate::Fence::after(highest.min_fence(), timeline).is_some());
    }
}

#[test]
fn debug_says_how_long_the_payload_is_and_not_what() {
    let config = Config::builder("job").payload(vec![7; 60_000]).build().unwrap();
    let shown = format!("{config:?}");
    assert!(shown.contains("payload_bytes: Some(60000)") && shown.len() < 500, "{shown}");
}

/// A small generator with a period long enough for this: Marsaglia's xorshift.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn whatever_builds_satisfies_the_invariant() {
    let mut state = 0x7e4e_2024;
    let (mut built, mut refused) = (0, 0);
    for _ in 0..200_000 {
        // Magnitudes are drawn evenly, so tiny, plausible and absurd values all meet each other.
        let mut draw = |bits: u64| Duration::from_nanos(next(&mut state) >> (63 - next(&mut state) % bits));
        let lease = draw(56);
        let builder = Config::builder("job")
            .lease_duration(lease)
            .renew_interval(draw(52))
            .retry_period(draw(56))
            .operation_timeout(draw(50));
        let margin = draw(56);
        let builder = if margin.as_nanos() % 2 == 0 { builder } else { builder.safety_margin(margin) };
        let Ok(config) = builder.build() else {
            refused += 1;
            continue;
        };
        built += 1;
        let nanos = |d: Duration| d.as_nanos();
        let retry_delay = (nanos(config.renew_interval()) / 4).max(50_000_000);
        assert_eq!(nanos(config.retry_delay()), retry_delay);
        assert!(
            nanos(config.renew_interval())
                + 2 * nanos(config.operation_timeout())
                + retry_delay
                + nanos(config.safety_margin())
                <= nanos(config.lease_duration()),
            "{config:?}"
        );
        assert!(nanos(config.safety_margin()) * 20 >= nanos(config.lease_duration()), "{config:?}");
        assert!(config.lease_duration() <= Config::MAX_LEASE_DURATION);
        assert!(config.retry_period() >= Config::MIN_DURATION);
        assert_eq!(nanos(config.lease_duration()) % 1_000, 0);
    }
    assert!(built > 1_000 && refused > 1_000, "{built} built, {refused} refused: too little happened");
}

#[test]
fn debugging_output_shows_the_settings_and_only_the_size_of_the_payload() {
    let builder = Config::builder("e").label("web-0").lease_duration(secs(20)).payload("secret");
    let shown = format!("{builder:?}");
    for part in ["ConfigBuilder", "\"e\"", "web-0", "20s", "payload_bytes: Some(6)"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn an_error_shows_a_text_quoted_and_cut() {
    let problem = |name: &str| Config::builder(name).build().unwrap_err().to_string();
    assert!(problem("a\0b").contains("\"a\\0b\""), "{}", problem("a\0b"));
    let long = problem(&"x".repeat(10_000));
    assert!(long.contains("\"xxx") && long.contains("x\"..."), "{long}");
    assert!(long.len() < 300, "{long}");
}

#[test]
fn the_smallest_margin_that_an_error_names_is_enough_and_no_less_is() {
    let lease = Duration::from_micros(10_000_001);
    let with = |margin| {
        let builder = Config::builder("e").lease_duration(lease).safety_margin(margin);
        builder.renew_interval(secs(1)).operation_timeout(secs(1)).build()
    };
    let least = Duration::from_nanos(500_000_050);
    assert_eq!(with(least).unwrap().safety_margin(), least);
    for too_little in [Duration::from_millis(1), least - Duration::from_nanos(1), lease] {
        let error = with(too_little).unwrap_err();
        assert_eq!(error.field(), "safety_margin");
        assert!(error.to_string().contains("500.00005ms"), "{error}");
    }
}
