use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn text(value: &impl Serialize) -> String {
    let mut out = Vec::new();
    write(value, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn text_that_yaml_11_would_misread_is_quoted() {
    // A float in YAML 1.1 can have several points, as 10.244.1.7 has.
    let words = "2026-05-01 2026-05-01T10:00:00Z 2026-05-01T10:00:00.123456789Z 10:30:00 12:30:00 190:20:30.15 1_000 \
        0x1f 0x1_F 0b1010 -1_0 << = ~ yes on off y 10.244.1.7";
    for other in words.split_whitespace() {
        assert_eq!(text(&BTreeMap::from([("a", other)])), format!("a: \"{other}\"\n"));
        assert_eq!(text(&BTreeMap::from([(other, "a")])), format!("\"{other}\": a\n"));
        assert_eq!(text(&[[other]]), format!("- - \"{other}\"\n"));
    }
    // The last two look like a number and a time, but YAML 1.1 has no rule for them.
    let words = "web-0 10.244.1.0/26 fd00::1 node-7 k8s-pod-network.3f9a v3.32.1";
    for plain in words.split(' ').chain(["0b", "2026-05-01 10:11:12.5 +0000 UTC"]) {
        assert_eq!(text(&BTreeMap::from([("a", plain)])), format!("a: {plain}\n"));
    }
}

#[test]
fn quoted_text_is_unchanged() {
    let value = BTreeMap::from([
        ("a: 2026-05-01", "2026-05-01"),
        ("it's: ", "1_0"),
        ("b\"\n\": x", "2026-05-01"),
        ("c", "first\n2026-05-01\n\n- x: 2026-05-01\nlast"),
        ("d", "2026-05-01"),
        ("e", "key: 2026-05-01"),
    ]);
    let written = text(&vec![&value]);
    let read: Vec<BTreeMap<String, String>> = serde_yaml::from_str(&written).unwrap();
    let expected: BTreeMap<String, String> = value
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    assert_eq!(read, [expected], "{written}");
    assert_eq!(written.matches("\"2026-05-01\"\n").count(), 3, "{written}");
    assert!(
        written.contains("\"first\\n2026-05-01\\n\\n- x: 2026-05-01\\nlast\"\n"),
        "{written}"
    );
}

/// Strings that test YAML's rules for plain and quoted strings.
const TEXTS: &[&str] = &[
    "a", "a b", "a  b", "~", "null", "Null", "nULL", "true", "False", "yes", "off", "y", "0", "7", "07",
    "+7", "-7", "-07", "--7", "1.5", ".5", "5.", "1e3", "1e", "-.inf", ".inf", ".INF", ".nan", ".NAN", "inf",
    "nan", "-inf", "0x1F", "0xg", "0o7", "0o8", "+0x1", "-0b1", "1.2.3", "fd00::", "::", "::1", "a:", "a: b",
    "a:b", ": a", ":a", ":", "#a", "a#", "a #b", "-", "- a", "-a", "---", "--- a", "...", "..a", "?", "? a",
    "?a", ",", "[a]", "a[b]", "{}", "&a", "*a", "!a", "|", ">", "'", "it's", "''", "\"a\"", "%a", "@a",
    "`a`", "a\\b", "ä", "日本", "😀", "<", "a/b",
];

/// Strings with leading or trailing spaces, line breaks, or characters that need escapes.
const LINES: &[&str] = &[
    " ", " a", "a ", "\n", "a\n", "a\nb", "a\n\n", "\na", " a\nb", "a \nb", "a\n b", "a\nb ", "\t", "a\tb",
    "a\r\nb", "a\rb", "a\u{85}b", "\u{2029}", "\u{0}", "\u{7f}",
];

/// Longer strings of both kinds.
const LONG: &[&str] = &[
    "12345678901234567890",
    "123456789012345678901234567890123456789012",
    "10.244.1.7",
    "10.0.0.0/26",
    "k8s-pod-network.3f9a0c",
    "a\n\n\nb\n",
    "a\u{2028}b",
    "a \u{2028}b",
    "a\u{2028}",
    "\u{feff}a",
    "\u{1b}[31m",
    "- a\n- b: c\n",
];

fn read(written: &str) -> Value {
    serde_yaml::from_str(written).unwrap_or_else(|error| panic!("{error}: {written:?}"))
}

/// Creates a document with the text in every possible position.
fn places(text: &str) -> Value {
    json!([
        text,
        [text, [text, text], text],
        {text: text},
        {text: {text: text, "z": [text, {"k": text}]}, "n": 1},
        {"l": [{"a": text, text: [text, text], "e": {}}, [], {}], "m": {"a": text}},
        {text: []},
        {text: [[text]]},
    ])
}

#[test]
fn every_text_is_read_back() {
    let long = [
        "a".repeat(128),
        "a".repeat(129),
        "a b: ".repeat(30),
        "ä".repeat(65),
        "a ".repeat(200),
    ];
    let texts = [TEXTS, LINES, LONG]
        .concat()
        .into_iter()
        .chain(long.iter().map(String::as_str));
    for one in texts {
        let value = places(one);
        assert_eq!(read(&text(&value)), value, "{one:?}");
        assert_eq!(read(&text(&one)), json!(one), "{one:?} alone");
    }
}

#[test]
fn values_other_than_text_are_read_back() {
    let numbers = json!({
        "a": [0, -1, u64::MAX, i64::MIN, 1.5, -0.0, 1e16, 1e-7, 1e300, 100.0, true, false, null, [], {}],
        "b": {"c": [], "d": {}, "e": [[], [[]], {"f": []}], "g": {"h": {}}},
    });
    assert_eq!(read(&text(&numbers)), numbers);
    for alone in [
        json!([]),
        json!({}),
        json!(null),
        json!(1),
        json!([[]]),
        json!([{}]),
        json!({"a": {}}),
    ] {
        assert_eq!(read(&text(&alone)), alone);
    }
    let keys = BTreeMap::from([(1, "x"), (-2, "7")]);
    assert_eq!(
        serde_yaml::from_str::<BTreeMap<i64, String>>(&text(&keys)).unwrap()[&-2],
        "7"
    );
    assert_eq!(text(&(1, "a", Some(f32::NAN))), "- 1\n- a\n- .nan\n");
    assert_eq!(
        text(&BTreeMap::from([(true, u128::MAX)])),
        format!("true: {}\n", u128::MAX)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any string of ordinary characters and characters that are special in YAML is read back unchanged.
    #[test]
    fn any_text_is_read_back(one in "[-+.:#?!&*|>'\"%@`{}\\[\\], 0-3xobeinfNaä\n\r\t]{0,9}") {
        let value = places(&one);
        prop_assert_eq!(&serde_yaml::from_str::<Value>(&text(&value)).unwrap(), &value);
    }
}

#[test]
fn a_variant_with_a_value_is_what_it_is_in_json() {
    #[derive(Serialize)]
    enum Tagged {
        One(u8),
    }
    assert_eq!(
        read(&text(&Tagged::One(1))),
        serde_json::to_value(Tagged::One(1)).unwrap()
    );
}
