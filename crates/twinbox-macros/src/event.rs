//! The derive macro `#[derive(Event)]`.
use crate::options::{self, at_least_one, both, dotted, flag, set};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, Data, DeriveInput, Error, LitInt, LitStr, Member, Path, Result, Token, Type,
    meta::ParseNestedMeta, parse::ParseStream, punctuated::Punctuated, spanned::Spanned,
};

const TYPE_BYTES_MAX: usize = 128;
const OPTIONS: [&str; 6] = ["type", "version", "key", "subject", "previous", "retired"];

type Fields = Punctuated<Member, Token![.]>;

#[derive(Default)]
struct Options {
    kind: Option<LitStr>,
    version: Option<LitInt>,
    key: Option<Fields>,
    subject: Option<Fields>,
    previous: Option<Type>,
    retired: Option<Path>,
}

impl Options {
    fn read(&mut self, meta: &ParseNestedMeta) -> Result<()> {
        match options::name(meta).as_str() {
            "type" => set(&mut self.kind, meta, kind),
            "version" => set(&mut self.version, meta, at_least_one),
            "key" => set(&mut self.key, meta, fields),
            "subject" => set(&mut self.subject, meta, fields),
            "previous" => set(&mut self.previous, meta, previous),
            "retired" => flag(&mut self.retired, meta),
            _ => Err(options::unknown(meta, &OPTIONS)),
        }
    }
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut options = Options::default();
    let mut checked = check_place(input);
    for attr in input.attrs.iter().filter(|attr| is_event(attr)) {
        let read = options::read(|logic| attr.parse_nested_meta(logic), |meta| options.read(meta));
        checked = both(checked, read).map(drop);
    }
    checked?;
    let name = &input.ident;
    let missing = |what| Error::new_spanned(name, format!("`#[event({what})]` is required"));
    let (kind, version) = both(
        options.kind.as_ref().ok_or_else(|| missing("type = \"…\"")),
        options.version.as_ref().ok_or_else(|| missing("version = 1")),
    )?;
    let event = event(input, &options)?;
    let schema = schema(name, kind, version, options.previous.as_ref());
    Ok(quote!(#schema #event))
}

fn schema(name: &Ident, kind: &LitStr, version: &LitInt, previous: Option<&Type>) -> TokenStream {
    let older = match previous {
        None => quote!(::twinbox::private::Oldest::decode(older)),
        Some(previous) => quote_spanned! {at(previous)=>
            <Self as ::core::convert::TryFrom<#previous>>::try_from(
                <#previous as ::twinbox::Schema>::decode(older, payload)?
            )
            .map_err(|e| ::twinbox::DecodeError::Upcast {
                from: <#previous as ::twinbox::Schema>::VERSION,
                source: e.into(),
            })
        },
    };
    let known =
        previous.map(|previous| quote_spanned!(at(previous)=> <#previous as ::twinbox::Schema>::versions()));
    let known = known.unwrap_or_else(|| quote!(::std::vec::Vec::new()));
    let check = previous.map(|previous| {
        quote_spanned! {at(previous)=>
            const _: () = {
                assert!(
                    ::twinbox::private::same(<#previous as ::twinbox::Schema>::TYPE, #kind),
                    "the `previous` version must have the same `type`"
                );
                assert!(
                    <#previous as ::twinbox::Schema>::VERSION < #version,
                    "the `previous` version must have a lower `version`"
                );
            };
        }
    });
    quote! {
        impl ::twinbox::Schema for #name {
            const TYPE: &'static str = #kind;
            const VERSION: u32 = #version;

            fn decode(version: u32, payload: &[u8]) -> ::core::result::Result<Self, ::twinbox::DecodeError> {
                match version {
                    #version => {
                        ::core::result::Result::Ok(::twinbox::private::serde_json::from_slice(payload)?)
                    }
                    older if older < #version => { #older }
                    found => ::core::result::Result::Err(
                        ::twinbox::DecodeError::UnknownNewer { found, known: #version }
                    ),
                }
            }

            fn versions() -> ::std::vec::Vec<u32> {
                let mut versions = #known;
                versions.push(#version);
                versions
            }
        }
        #check
    }
}

fn event(input: &DeriveInput, options: &Options) -> Result<TokenStream> {
    let retired = options.retired.is_some();
    let (key, subject) = both(
        options.key.as_ref().map(|key| text("key", key, retired, &input.data)).transpose(),
        options.subject.as_ref().map(|subject| text("subject", subject, retired, &input.data)).transpose(),
    )?;
    if retired {
        return Ok(TokenStream::new());
    }
    let name = &input.ident;
    let keyless = key.is_none().then(|| {
        quote!(
            const HAS_KEY: bool = false;
        )
    });
    let key = key.unwrap_or_else(|| quote!(::core::option::Option::None));
    let subject = subject.map(|subject| {
        quote! {
            fn subject(&self) -> ::core::option::Option<::std::string::String> { #subject }
        }
    });
    Ok(quote! {
        impl ::twinbox::Event for #name {
            fn key(&self) -> ::core::option::Option<::std::string::String> { #key }
            #subject
            #keyless
        }
    })
}

fn text(option: &str, path: &Fields, retired: bool, data: &Data) -> Result<TokenStream> {
    if retired {
        let message = format!("remove `{option}`: a retired version is never published");
        return Err(Error::new_spanned(path, message));
    }
    if is_option(path, data) {
        let message = format!("`{option}` cannot be an `Option`: name a field that always has a value");
        return Err(Error::new_spanned(path, message));
    }
    let to_string = quote_spanned!(at(path)=> ::std::string::ToString::to_string(&self.#path));
    Ok(quote!(::core::option::Option::Some(#to_string)))
}

/// The span for code that belongs to an option: its errors point at the option.
///
/// Names are resolved at the derive, also if a `macro_rules` macro wrote the event.
fn at(written: &impl Spanned) -> Span {
    written.span().resolved_at(Span::call_site())
}

/// Whether the path is a field of type `Option`, by the name of the type.
///
/// Only fields of the event itself are checked. For deeper fields the compiler reports that `Option` has no
/// `ToString`.
fn is_option(path: &Fields, data: &Data) -> bool {
    let Data::Struct(data) = data else { return false };
    let mut fields = data.fields.members().zip(&data.fields);
    let field = fields.find(|(member, _)| path.len() == 1 && path.first() == Some(member));
    match field.map(|(_, field)| &field.ty) {
        Some(Type::Path(ty)) => ty.path.segments.last().is_some_and(|segment| segment.ident == "Option"),
        _ => false,
    }
}

fn kind(input: ParseStream) -> Result<LitStr> {
    dotted(input, "`orders.placed`", TYPE_BYTES_MAX)
}

fn previous(input: ParseStream) -> Result<Type> {
    input.parse().map_err(|e| Error::new(e.span(), "expected the type of the previous version"))
}

fn fields(input: ParseStream) -> Result<Fields> {
    Punctuated::parse_separated_nonempty(input)
        .map_err(|e| Error::new(e.span(), "expected a field, like `order_id` or `order.id`"))
}

fn check_place(input: &DeriveInput) -> Result<()> {
    let params = &input.generics.params;
    let generic = match params.is_empty() {
        true => Ok(()),
        false => {
            let message = "an event cannot be generic, because its type name stands for one Rust type";
            Err(Error::new_spanned(params, message))
        }
    };
    let attr = match &input.data {
        Data::Struct(data) => data.fields.iter().flat_map(|field| &field.attrs).find(|attr| is_event(attr)),
        _ => None,
    };
    let misplaced = match attr {
        Some(attr) => {
            let message = "write `#[event(…)]` on the struct and name the field: `key = order_id`";
            Err(Error::new_spanned(attr, message))
        }
        None => Ok(()),
    };
    both(generic, misplaced).map(drop)
}

fn is_event(attr: &Attribute) -> bool {
    attr.path().is_ident("event")
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn written(input: &DeriveInput) -> String {
        expand(input).unwrap().to_string().replace(' ', "")
    }

    fn mistakes(input: &DeriveInput) -> Vec<String> {
        expand(input).unwrap_err().into_iter().map(|e| e.to_string()).collect()
    }

    #[test]
    fn key_and_subject_are_the_text_of_fields() {
        let written = written(&parse_quote! {
            #[event(type = "orders.placed", version = 1, key = order.id)]
            #[event(subject = 0)]
            struct Placed;
        });
        let to_string = "::core::option::Option::Some(::std::string::ToString::to_string(&self.";
        assert!(written.contains(&format!("{to_string}order.id))")), "{written}");
        assert!(written.contains(&format!("{to_string}0))")), "{written}");
        assert!(written.contains("constVERSION:u32=1;"), "{written}");
        assert!(!written.contains("HAS_KEY"), "{written}");
    }

    #[test]
    fn only_the_current_version_is_an_event() {
        let current = written(&parse_quote!(
            #[event(type = "a", version = 1)]
            enum Placed {}
        ));
        assert!(current.contains("::twinbox::EventforPlaced{fnkey("), "{current}");
        assert!(!current.contains("fnsubject"), "{current}");
        assert!(current.contains("constHAS_KEY:bool=false;"), "{current}");
        let retired = written(&parse_quote!(
            #[event(type = "a", version = 1, retired)]
            struct PlacedV1;
        ));
        assert!(retired.contains("::twinbox::SchemaforPlacedV1{"), "{retired}");
        assert!(!retired.contains("::twinbox::Event"), "{retired}");
    }

    #[test]
    fn the_previous_version_is_converted_and_checked() {
        let written = written(&parse_quote!(
            #[event(type = "a", version = 2, previous = v1::A)]
            struct A;
        ));
        assert!(written.contains("<Selfas::core::convert::TryFrom<v1::A>>::try_from("), "{written}");
        assert!(written.contains("<v1::Aas::twinbox::Schema>::VERSION<2,"), "{written}");
    }

    #[test]
    fn type_and_version_are_required() {
        let both = ["`#[event(type = \"…\")]` is required", "`#[event(version = 1)]` is required"];
        assert_eq!(
            mistakes(&parse_quote!(
                struct Placed;
            )),
            both
        );
        assert_eq!(
            mistakes(&parse_quote!(
                #[event(retired)]
                struct Placed;
            )),
            both
        );
        assert_eq!(
            mistakes(&parse_quote!(
                #[event(type = "a")]
                struct Placed;
            )),
            both[1..]
        );
    }

    #[test]
    fn each_value_is_checked() {
        let input = parse_quote! {
            #[event(type = "orders.*", version = 0, key = self.id, subject = "id", previous = 1, retire)]
            #[event(kind = "a")]
            struct Placed<T> {
                #[event(key)]
                id: T,
            }
        };
        assert_eq!(
            mistakes(&input),
            [
                "an event cannot be generic, because its type name stands for one Rust type",
                "write `#[event(…)]` on the struct and name the field: `key = order_id`",
                "expected words of a-z, 0-9, `_` and `-` joined by dots, like `orders.placed`",
                "expected a number from 1 to 4294967295",
                "expected a field, like `order_id` or `order.id`",
                "expected a field, like `order_id` or `order.id`",
                "expected the type of the previous version",
                "unknown option, did you mean `retired`?",
                "unknown option, expected `type`, `version`, `key`, `subject`, `previous`, `retired`",
            ]
        );
    }

    #[test]
    fn options_are_given_once() {
        let input = parse_quote! {
            #[event(type = "a", version = 1, retired)]
            #[event(version = 2, retired)]
            struct Placed;
        };
        assert_eq!(mistakes(&input), ["this option is given twice", "this option is given twice"]);
    }

    #[test]
    fn a_type_name_has_a_limit() {
        let named = |n| {
            let name = "a".repeat(n);
            expand(&parse_quote!(
                #[event(type = #name, version = 1)]
                struct Placed;
            ))
        };
        assert!(named(128).is_ok());
        assert_eq!(named(129).unwrap_err().to_string(), "the name has 129 bytes, more than the limit of 128");
    }

    #[test]
    fn key_and_subject_need_a_current_version_and_a_value() {
        let retired = parse_quote!(
            #[event(type = "a", version = 1, retired, key = id, subject = id)]
            struct A {
                id: i64,
            }
        );
        assert_eq!(
            mistakes(&retired),
            [
                "remove `key`: a retired version is never published",
                "remove `subject`: a retired version is never published",
            ]
        );
        let absent = parse_quote! {
            #[event(type = "a", version = 1, key = id, subject = 0)]
            struct A { id: std::option::Option<i64> }
        };
        assert_eq!(mistakes(&absent), ["`key` cannot be an `Option`: name a field that always has a value"]);
    }
}
