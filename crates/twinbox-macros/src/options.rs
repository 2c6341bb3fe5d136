//! The options of an attribute, and the errors for them.
use proc_macro2::TokenTree;
use std::mem;
use syn::{
    Error, LitInt, LitStr, Path, Result, Token,
    meta::ParseNestedMeta,
    parse::{Parse, ParseStream},
};

/// Reads options and reports all mistakes at once: a mistake in one option does not hide those in later ones.
pub(crate) fn read(
    parse: impl FnOnce(&mut dyn FnMut(ParseNestedMeta) -> Result<()>) -> Result<()>,
    mut one: impl FnMut(&ParseNestedMeta) -> Result<()>,
) -> Result<()> {
    let mut mistakes = Ok(());
    let syntax = parse(&mut |meta| {
        let result = one(&meta);
        if result.is_err() {
            skip_value(meta.input)?;
        }
        mistakes = both(mem::replace(&mut mistakes, Ok(())), result).map(drop);
        Ok(())
    });
    let syntax = syntax.map_err(|e| match e.to_string().starts_with("unexpected literal") {
        true => Error::new(e.span(), "write an option as `name = value`"),
        false => e,
    });
    both(mistakes, syntax).map(drop)
}

fn skip_value(input: ParseStream) -> Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

/// Returns both values, or the errors of both.
pub(crate) fn both<A, B>(a: Result<A>, b: Result<B>) -> Result<(A, B)> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(mut a), Err(b)) => {
            a.combine(b);
            Err(a)
        }
        (Err(e), Ok(_)) | (Ok(_), Err(e)) => Err(e),
    }
}

/// Reads an option of the form `option = value`.
pub(crate) fn set<T>(
    slot: &mut Option<T>,
    meta: &ParseNestedMeta,
    parse: impl FnOnce(ParseStream) -> Result<T>,
) -> Result<()> {
    let value = meta.value().map_err(|_| {
        Error::new_spanned(&meta.path, format!("this option needs a value: `{} = …`", name(meta)))
    })?;
    once(slot, &meta.path, parse(value)?)
}

/// Reads an option without a value.
pub(crate) fn flag(slot: &mut Option<Path>, meta: &ParseNestedMeta) -> Result<()> {
    once(slot, &meta.path, meta.path.clone())
}

fn once<T>(slot: &mut Option<T>, option: &Path, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new_spanned(option, "this option is given twice")),
    }
}

pub(crate) fn name(meta: &ParseNestedMeta) -> String {
    meta.path.get_ident().map(ToString::to_string).unwrap_or_default()
}

/// The error for an unknown option, which suggests one of the known options.
pub(crate) fn unknown(meta: &ParseNestedMeta, known: &[&str]) -> Error {
    let name = name(meta);
    let near = known.iter().map(|option| (distance(&name, option), option)).min();
    let message = match near {
        Some((0..=2, option)) => format!("unknown option, did you mean `{option}`?"),
        _ => format!("unknown option, expected `{}`", known.join("`, `")),
    };
    Error::new_spanned(&meta.path, message)
}

/// The number of letters to insert, remove or replace (Levenshtein distance).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Parses a literal. The error is the text `expected`.
pub(crate) fn literal<T: Parse>(input: ParseStream, expected: &str) -> Result<T> {
    input.parse().map_err(|e| Error::new(e.span(), expected))
}

pub(crate) fn at_least_one(input: ParseStream) -> Result<LitInt> {
    let expected = format!("expected a number from 1 to {}", u32::MAX);
    let number: LitInt = literal(input, &expected)?;
    match number.base10_parse::<u32>() {
        Ok(1..) => Ok(number),
        _ => Err(Error::new_spanned(number, expected)),
    }
}

/// Parses a name: words joined by dots.
///
/// A name becomes part of a NATS subject, so it must have no wildcard and no empty token.
pub(crate) fn dotted(input: ParseStream, what: &str, bytes_max: usize) -> Result<LitStr> {
    let literal: LitStr =
        literal(input, &format!("expected text in quotes, like {}", what.replace('`', "\"")))?;
    let name = literal.value();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if !name.split('.').all(|word| !word.is_empty() && word.bytes().all(plain)) {
        let message = format!("expected words of a-z, 0-9, `_` and `-` joined by dots, like {what}");
        return Err(Error::new_spanned(literal, message));
    }
    if name.len() > bytes_max {
        let message = format!("the name has {} bytes, more than the limit of {bytes_max}", name.len());
        return Err(Error::new_spanned(literal, message));
    }
    Ok(literal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse::Parser;

    /// The errors of an attribute with the options `key`, `max_attempts` and `batch`, which are numbers.
    fn mistakes(attribute: &str) -> Vec<String> {
        let (mut key, mut max_attempts, mut batch) = (None, None, None);
        let tokens: proc_macro2::TokenStream = attribute.parse().unwrap();
        let result = read(
            |logic| syn::meta::parser(logic).parse2(tokens),
            |meta| match name(meta).as_str() {
                "key" => set(&mut key, meta, at_least_one),
                "max_attempts" => set(&mut max_attempts, meta, at_least_one),
                "batch" => set(&mut batch, meta, at_least_one),
                _ => Err(unknown(meta, &["key", "max_attempts", "batch"])),
            },
        );
        result.err().into_iter().flatten().map(|e| e.to_string()).collect()
    }

    #[test]
    fn all_mistakes_are_reported() {
        assert!(mistakes("key = 1, max_attempts = 2,").is_empty());
        assert_eq!(
            mistakes("max_attempt = (1, 2), batch, key = \"a\", batch = 0, key = 1, key = 2, batch = 1 2"),
            [
                "unknown option, did you mean `max_attempts`?",
                "this option needs a value: `batch = …`",
                "expected a number from 1 to 4294967295",
                "expected a number from 1 to 4294967295",
                "this option is given twice",
                "expected `,`",
            ]
        );
    }

    #[test]
    fn a_name_that_is_not_close_gets_the_list_of_options() {
        let list = ["unknown option, expected `key`, `max_attempts`, `batch`"];
        assert_eq!(mistakes("retries = 3"), list);
        assert_eq!(mistakes("key::batch = 3"), list);
        assert_eq!(mistakes("bacht = 3"), ["unknown option, did you mean `batch`?"]);
    }

    #[test]
    fn the_distance_counts_letters() {
        for (a, b, expected) in
            [("", "key", 3), ("key", "key", 0), ("keys", "key", 1), ("cosnumer", "consumer", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn numbers_start_at_one() {
        for bad in ["0", "-1", "4294967296"] {
            let error = at_least_one.parse_str(bad).err().unwrap();
            assert_eq!(error.to_string(), "expected a number from 1 to 4294967295", "{bad}");
        }
        assert_eq!(at_least_one.parse_str("4294967295").unwrap().base10_digits(), "4294967295");
    }

    #[test]
    fn names_are_words_joined_by_dots() {
        let parse = |name: &str| {
            let parser = |input: ParseStream| dotted(input, "`a.b`", 8);
            parser.parse_str(&format!("{name:?}")).map(|name| name.value()).map_err(|e| e.to_string())
        };
        for name in ["a", "a.b-c_9", "aaaaaaaa"] {
            assert_eq!(parse(name).as_deref(), Ok(name));
        }
        for name in ["", ".", "a.", "a..b", "A", "a b", "a.*", "a>", "ä"] {
            let message = "expected words of a-z, 0-9, `_` and `-` joined by dots, like `a.b`";
            assert_eq!(parse(name), Err(message.to_owned()), "{name}");
        }
        assert_eq!(parse("aaaaaaaaa"), Err("the name has 9 bytes, more than the limit of 8".to_owned()));
    }
}
