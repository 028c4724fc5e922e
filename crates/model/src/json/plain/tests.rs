use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;

fn read(text: &str) -> Option<Value> {
    read_document(text.as_bytes(), |reader| Value::deserialize(reader)).ok()
}

fn skip(text: &str) -> bool {
    read_document(text.as_bytes(), |reader| IgnoredAny::deserialize(reader)).is_ok()
}

#[test]
fn json_that_calico_writes_is_plain() {
    for text in [
        r#"{"a":{"b":[1,-2,null,true,false,"é",{}],"c":[]},"d":18446744073709551615} "#,
        r#" [ { "a" : "" } , 0 ] "#,
        "null",
        r#""text""#,
    ] {
        assert_eq!(read(text), Some(serde_json::from_str(text).unwrap()), "{text}");
        assert!(skip(text), "{text}");
    }
}

#[test]
fn rare_and_invalid_json_is_left_to_the_general_reader() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&deep(48)).is_some() && skip(&deep(48)));
    for text in [
        "",
        " ",
        "{",
        "[",
        "\"",
        "\"a",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "{a:1}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "1 2",
        "01",
        "-",
        "-01",
        "+1",
        "1.5",
        "1e5",
        "1E5",
        "nul",
        "nulls",
        "True",
        "tru",
        "'a'",
        "[1]]",
        "{}}",
        "\"\\u0041\"",
        "\"\n\"",
        "[\t1]",
        "[1]\n",
        "\u{0}",
    ] {
        assert_eq!(read(text), None, "{text}");
        assert!(!skip(text), "{text}");
    }
    assert!(read(&deep(49)).is_none() && !skip(&deep(49)));
    // Numbers too large for any integer can be skipped, but not read.
    for text in ["18446744073709551616", "-9223372036854775809", "-0"] {
        assert_eq!(read(text), None, "{text}");
        assert!(skip(text), "{text}");
    }
    assert!(read_document(b"\"\xFF\"", |reader| IgnoredAny::deserialize(reader)).is_err());
}
