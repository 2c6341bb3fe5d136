//! Whatever bytes a caller sends. t32
use proptest::prelude::*;
use twinbox::http::KeySyntax;
use twinbox_core::canonical::canonical;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Every key that is taken is one that can be written again, quoted and plain.
    #[test]
    fn t32_no_header_makes_the_key_panic(value in proptest::collection::vec(any::<u8>(), 0..300)) {
        let any_text = KeySyntax::default().any_text().length(1..=255);
        for rule in [KeySyntax::default(), any_text, KeySyntax::default().only_uuids()] {
            if let Ok(key) = rule.parse(&[&value]) {
                let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
                prop_assert_eq!(rule.parse(&[quoted.as_bytes()]), Ok(key));
            }
        }
    }

    /// The form of a form is the form.
    #[test]
    fn t32_no_body_makes_its_form_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(form) = canonical(&body, &[]) {
            prop_assert_eq!(canonical(&form, &[]), Ok(form));
        }
    }

    #[test]
    fn t32_the_form_of_json_is_its_own_form(body in r#"[\[\]{}:,0-9eE+\-. "\\utrfalsn]{0,60}"#) {
        if let Ok(form) = canonical(body.as_bytes(), &[]) {
            prop_assert_eq!(canonical(&form, &[]), Ok(form));
        }
    }
}
