//! The derive macro `#[derive(Provide)]`.
use crate::options::{self, both, flag};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use std::collections::HashSet;
use syn::{Attribute, Data, DeriveInput, Error, Field, Result};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "`Provide` can be derived only for a struct"));
    };
    let mut types = HashSet::new();
    let mut impls = match input.attrs.iter().find(|attr| is_provide(attr)) {
        Some(attr) => Err(Error::new_spanned(attr, "write `#[provide(…)]` on a field")),
        None => Ok(TokenStream::new()),
    };
    let (name, (generics, arguments, bounds)) = (&input.ident, input.generics.split_for_impl());
    for (member, field) in data.fields.members().zip(&data.fields) {
        let ty = &field.ty;
        let provided = skipped(field).and_then(|skipped| match skipped {
            true => Ok(TokenStream::new()),
            false if !types.insert(ty.to_token_stream().to_string()) => {
                let message = "another field has the same type: \
                    write `#[provide(skip)]` on one of them, or wrap one in its own type";
                Err(Error::new_spanned(ty, message))
            }
            false => Ok(quote! {
                impl #generics ::twinbox::Provide<#ty> for #name #arguments #bounds {
                    fn provide(&self) -> &#ty { &self.#member }
                }
            }),
        });
        impls = both(impls, provided).map(|(before, this)| [before, this].into_iter().collect());
    }
    impls
}

fn skipped(field: &Field) -> Result<bool> {
    let mut skip = None;
    for attr in field.attrs.iter().filter(|attr| is_provide(attr)) {
        options::read(
            |logic| attr.parse_nested_meta(logic),
            |meta| match options::name(meta).as_str() {
                "skip" => flag(&mut skip, meta),
                _ => Err(options::unknown(meta, &["skip"])),
            },
        )?;
    }
    Ok(skip.is_some())
}

fn is_provide(attr: &Attribute) -> bool {
    attr.path().is_ident("provide")
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn mistakes(input: &DeriveInput) -> Vec<String> {
        expand(input).unwrap_err().into_iter().map(|e| e.to_string()).collect()
    }

    #[test]
    fn each_field_is_provided_except_skipped_ones() {
        let state = parse_quote! {
            struct State<T: Send> where T: Sync {
                app: App<T>,
                #[provide(skip)]
                name: String,
            }
        };
        let expected = quote! {
            impl<T: Send> ::twinbox::Provide<App<T> > for State<T> where T: Sync {
                fn provide(&self) -> &App<T> { &self.app }
            }
        };
        assert_eq!(expand(&state).unwrap().to_string(), expected.to_string());
        let tuple = expand(&parse_quote!(
            struct State(App);
        ))
        .unwrap()
        .to_string();
        assert!(tuple.contains("& self . 0"), "{tuple}");
    }

    #[test]
    fn all_mistakes_are_reported() {
        assert_eq!(
            mistakes(&parse_quote!(
                enum State {}
            )),
            ["`Provide` can be derived only for a struct"]
        );
        let twice = parse_quote! {
            #[provide(skip)]
            struct State {
                a: String,
                #[provide(skipp)]
                b: u8,
                c: String,
                #[provide(skip)]
                d: String,
            }
        };
        assert_eq!(
            mistakes(&twice),
            [
                "write `#[provide(…)]` on a field",
                "unknown option, did you mean `skip`?",
                "another field has the same type: \
                 write `#[provide(skip)]` on one of them, or wrap one in its own type",
            ]
        );
    }
}
