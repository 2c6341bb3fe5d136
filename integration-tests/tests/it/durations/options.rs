//! The options of all builders, by their sources.
use crate::workspace::files::texts;
use std::collections::BTreeSet;
use syn::{FnArg, ImplItem, Item, ReturnType, Type, Visibility, visit_mut::VisitMut};

/// Functions that are no options, with the reason.
pub(super) const OTHERS: &[(&str, &str)] = &[
    ("DestinationCheck::new", "what a destination has found out"),
    ("PublishError::with_retry_after", "what a broker answers"),
    ("VendorError::retry_after", "what a vendor answers"),
    ("Query::within", "a limit of our own"),
    ("Standby::new", "the lease of a relay's options"),
];

/// Finds a word among the types of a signature.
struct Finds {
    word: &'static str,
    is_found: bool,
}

impl VisitMut for Finds {
    fn visit_ident_mut(&mut self, ident: &mut syn::Ident) {
        self.is_found |= *ident == self.word;
    }
}

fn names(ty: &Type, word: &'static str) -> bool {
    let mut finds = Finds { word, is_found: false };
    finds.visit_type_mut(&mut ty.clone());
    finds.is_found
}

/// The functions that take a duration and return `Self`, as `Type::function`.
fn takes_duration(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for item in syn::parse_file(code).unwrap().items {
        let Item::Impl(block) = item else { continue };
        let Type::Path(of) = &*block.self_ty else { continue };
        let of = of.path.segments.last().unwrap().ident.to_string();
        for item in block.items {
            let ImplItem::Fn(function) = item else { continue };
            let ReturnType::Type(_, returned) = &function.sig.output else { continue };
            let takes = function.sig.inputs.iter().any(|input| match input {
                FnArg::Typed(input) => names(&input.ty, "Duration"),
                FnArg::Receiver(_) => false,
            });
            if matches!(function.vis, Visibility::Public(_)) && takes && names(returned, "Self") {
                found.push(format!("{of}::{}", function.sig.ident));
            }
        }
    }
    found
}

pub(super) fn in_sources() -> BTreeSet<String> {
    let product = |name: &str| {
        let of_crate = name.strip_prefix("crates/").is_some_and(|rest| rest.contains("/src/"));
        of_crate && name.ends_with(".rs") && !name.starts_with("crates/twinbox-testkit/")
    };
    texts().filter(|(name, _)| product(name)).flat_map(|(_, code)| takes_duration(&code)).collect()
}

#[test]
fn an_option_is_found_by_its_signature() {
    let code = "impl<T> A<T> {
        pub fn a(self, time: Duration) -> Self {}
        pub const fn b(times: &'static [Duration], n: u32) -> Result<Self, Error> {}
        pub fn c(self, n: u32) -> Self {}
        pub fn d(&self, time: Duration) -> u32 {}
        fn e(self, time: Duration) -> Self {}
    }";
    assert_eq!(takes_duration(code), ["A::a", "A::b"]);
}
