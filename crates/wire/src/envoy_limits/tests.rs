//! Files that are read, every mistake in one pass, and any text at all.

use super::*;
use proptest::prelude::*;

#[test]
fn a_file_is_read_as_the_reference_service_reads_it() {
    let text = "
domain: 7
descriptors:
  - key: a
    value: 12*
    share_threshold: yes
    shadow_mode: on
    rate_limit: {name: n, unit: MINUTE, requests_per_unit: 5, replaces: [{name: other}]}
    descriptors:
      - {key: b, value: '', detailed_metric: true, rate_limit: {unlimited: true}}
";
    let DomainRead { domain, warnings } = read(text.as_bytes()).unwrap();
    let [a] = &domain.descriptors[..] else { unreachable!("one was written") };
    assert_eq!((&*domain.name, &*a.key, a.value.as_deref()), ("7", "a", Some("12*")));
    assert!(a.shadow_mode && a.share_threshold && a.place == Position { line: 4, column: 5 });
    let limit = a.limit.as_ref().unwrap();
    assert_eq!(limit.quota, Some(Quota { requests_per_unit: 5, unit: LimitUnit::Minute }));
    assert_eq!((limit.name.as_deref(), &*limit.replaces[0].0), (Some("n"), "other"));
    let [b] = &a.descriptors[..] else { unreachable!("one was written") };
    assert_eq!((b.value.as_deref(), b.limit.as_ref().unwrap().quota), (None, None));
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].path, "descriptors[0].descriptors[0].detailed_metric");
}

#[test]
fn every_mistake_is_found_in_one_pass() {
    let text = "
descriptors:
  - value: x
    colour: red
    rate_limit: {unit: fortnight, requests_per_unit: -1}
  - key: a
    rate_limit: {unlimited: true, unit: day}
  - key: a
    key: a
    share_threshold: true
    shadow_mode: maybe
    quota_mode: true
    rate_limit: {requests_per_unit: 5, name: n, replaces: [{name: n}, {}]}
  - [key, b]
  - key: c
    value: {d: e}
    descriptors: none
";
    let found: Vec<String> = read(text.as_bytes())
        .unwrap_err()
        .into_iter()
        .map(|it| format!("{}:{} {} {}", it.place.line, it.place.column, it.path, it.problem))
        .collect();
    assert_eq!(
        found,
        [
            "2:1 domain is missing",
            "4:5 descriptors[0].colour is not a known key",
            "3:5 descriptors[0].key is missing",
            "5:24 descriptors[0].rate_limit.unit is \"fortnight\"",
            "5:54 descriptors[0].rate_limit.requests_per_unit is \"-1\"",
            "7:41 descriptors[1].rate_limit.unit is given for what is unlimited",
            "9:5 descriptors[2].key is there twice",
            "13:60 descriptors[2].rate_limit.replaces[0] replaces itself",
            "13:71 descriptors[2].rate_limit.replaces[1].name is missing",
            "13:17 descriptors[2].rate_limit.unit is missing",
            "11:18 descriptors[2].shadow_mode is \"maybe\"",
            "8:5 descriptors[2].share_threshold is set where there is nothing to share",
            "8:5 descriptors[2].quota_mode is not supported",
            "8:5 descriptors[2] has the key and value of the one in line 6",
            "14:5 descriptors[3] is a list",
            "16:12 descriptors[4].value is a map",
            "17:18 descriptors[4].descriptors is a scalar",
        ]
    );
}

proptest! {
    #[test]
    fn any_text_gives_rules_or_mistakes(text in "([ \\n:,\\[\\]{}&*!|>'\"#-]|domain|descriptors|key|value|rate_limit|unit|a|1){0,60}") {
        if let Err(mistakes) = read(text.as_bytes()) {
            prop_assert!(!mistakes.is_empty());
        }
    }
}
