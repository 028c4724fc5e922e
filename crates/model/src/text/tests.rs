use proptest::prelude::*;

use super::*;

#[test]
fn a_handle_takes_less_than_half_its_length() {
    let id = format!("k8s-pod-network.{}", "0123456789abcdef".repeat(4));
    let text = Text::new(&id);
    assert_eq!(text.to_string(), id);
    assert_eq!(text.as_ref().packed().len(), 1 + 2 + 32);
    assert!(text.as_ref().starts_with("k8s-pod-network."));
    assert!(!text.as_ref().starts_with("lb-"));
    assert!(matches!(text.as_ref().plain(), Cow::Owned(plain) if plain == id));
    assert!(matches!(
        Text::new("web-0").as_ref().plain(),
        Cow::Borrowed("web-0")
    ));
}

#[test]
fn a_timestamp_is_one_number() {
    let text = Text::new("2026-05-01 10:12:00.123456789 +0000 UTC");
    assert_eq!(text.as_ref().packed().len(), 9);
    assert_eq!(text.to_string(), "2026-05-01 10:12:00.123456789 +0000 UTC");
}

#[test]
fn the_cut_is_before_the_first_carriage_return() {
    for head in [
        "",
        "k8s-pod-network.",
        "k8s-pod-network.k8s-pod-network.",
        "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d",
        "a.0d0d0d0d0d0d0d0d0d0d0d0d",
    ] {
        let text = Text::new(&format!("{head}\r\neth0\r"));
        assert_eq!(
            text.as_ref().cut_at_carriage_return(),
            Text::new(head).as_ref(),
            "{head}"
        );
        assert!(text.as_ref().has_carriage_return());
        assert!(!Text::new(head).as_ref().has_carriage_return());
    }
}

proptest! {
    #[test]
    fn packed_text_is_unchanged(text in "([0-9a-f]{0,700}|[0-9a-f]{63,65}|\\PC{0,40}|[0-9a-fA-F.\r-]{0,60}){0,4}") {
        let packed = Text::new(&text);
        prop_assert_eq!(packed.to_string(), text.clone());
        let handle = format!("{NETWORK}{text}");
        prop_assert_eq!(Text::new(&handle).to_string(), handle.clone());
        prop_assert!(packed.as_ref() == *text.as_str());
        prop_assert!(packed.as_ref() != *handle.as_str() && Text::new(&handle).as_ref() != *text.as_str());
        prop_assert_eq!(packed.as_ref().plain(), text.as_str());
        prop_assert_eq!(format!("{packed:>720}"), format!("{text:>720}"));
    }
}
