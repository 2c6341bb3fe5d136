//! The attribute macro `#[event_handler]`.
use crate::{options::both, policy::Policy};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, Error, FnArg, GenericArgument, GenericParam, Generics, Lifetime, LitInt, PathArguments,
    PathSegment, Result, ReturnType, Signature, Type, TypePath, Visibility,
    parse::{ParseStream, Parser},
    parse_quote, parse_quote_spanned,
    spanned::Spanned,
    visit_mut::VisitMut,
};

const SHAPE: &str = "write a handler as \
    `async fn(app: &App, tx: &mut Tx<'_, DB>, event: Delivery<E>) -> HandlerResult`; `app` is optional";

/// Writes the type that registers the function `item` as a handler.
pub(crate) fn expand(attr: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (policy, function) = both(Policy::parse(attr), Function::parse.parse2(item))?;
    check_pair(&function.tx, &function.input, policy.batch.as_ref())?;
    let database = function.database()?;
    let Function { conditions, vis, name, generics, app, tx: _, input } = &function;

    let turbofish = generics.type_params().next().map(|_| quote!(::<#database>));
    let mut generics = generics.clone();
    // The underscores keep it apart from types of the application.
    generics.params.push(parse_quote!(__S));
    let bounds = generics.make_where_clause();
    // Mixed-site hygiene, because the function may have the name of an argument.
    let [app_arg, tx_arg, input_arg] = ["app", "tx", "input"].map(|arg| Ident::new(arg, Span::mixed_site()));
    let (state, parameter, argument) = match app {
        Some(app) => {
            bounds.predicates.push(parse_quote_spanned!(app.span()=> __S: ::twinbox::Provide<#app>));
            (quote!(#app), quote!(#app_arg), Some(quote!(#app_arg,)))
        }
        None => (quote!(__S), quote!(_), None),
    };
    bounds.predicates.push(parse_quote!(__S: ::core::marker::Send + ::core::marker::Sync + 'static));
    let (generics, _, bounds) = generics.split_for_impl();

    // `handler_fn` would do the same, but here the compiler names the value that is not `Send`, at the
    // function.
    let call = quote_spanned! {name.span()=>
        ::std::boxed::Box::pin(#name #turbofish (#argument #tx_arg, #input_arg))
    };
    let event = quote_spanned!(input.span()=> <#input as ::twinbox::consumer::HandlerInput>::Event);
    // The span of the input, so that an input which is not a delivery is one error and not two.
    let new = quote_spanned! {input.span()=>
        ::twinbox::consumer::Handler::new::<#state, #input>(
            <Self as ::twinbox::consumer::EventHandler<#database, __S>>::POLICY,
            |#parameter, #tx_arg, #input_arg| #call,
        )
    };
    let doc = format!("Registers [`{name}()`]: `consumer.handler::<{name}>()`.");
    Ok(quote! {
        #(#conditions)*
        #[doc = #doc]
        #[allow(non_camel_case_types)]
        #[derive(::core::fmt::Debug)]
        #vis struct #name {}

        #(#conditions)*
        impl #generics ::twinbox::consumer::EventHandler<#database, __S> for #name #bounds {
            const POLICY: ::twinbox::Policy = #policy;
            type Event = #event;

            fn handler() -> ::twinbox::consumer::Handler<#database, __S> {
                #new
            }
        }
    })
}

/// The signature of a handler.
struct Function {
    /// The `#[cfg(…)]` attributes.
    conditions: Vec<Attribute>,
    vis: Visibility,
    name: Ident,
    generics: Generics,
    app: Option<Type>,
    tx: Type,
    input: Type,
}

impl Function {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut conditions = Attribute::parse_outer(input)?;
        conditions.retain(|attr| attr.path().is_ident("cfg"));
        let vis = input.parse()?;
        let signature: Signature = input.parse().map_err(|e| Error::new(e.span(), SHAPE))?;
        input.parse::<TokenStream>()?;
        if signature.asyncness.is_none() {
            return Err(Error::new_spanned(signature.fn_token, SHAPE));
        }
        if let ReturnType::Default = signature.output {
            return Err(Error::new_spanned(signature.ident, "a handler must return `HandlerResult`"));
        }
        let types = signature.inputs.iter().map(parameter).collect::<Result<Vec<_>>>()?;
        let (app, tx, input) = match &types[..] {
            [app, tx, input] => (Some(app), tx, input),
            [tx, input] => (None, tx, input),
            _ => return Err(Error::new(signature.paren_token.span.join(), SHAPE)),
        };
        Ok(Self {
            conditions,
            vis,
            name: signature.ident,
            generics: signature.generics,
            app: app.map(|ty| referent(ty, false)).transpose()?,
            tx: referent(tx, true)?,
            input: input.clone(),
        })
    }

    /// The type of the database, as tokens for the head of an `impl`.
    ///
    /// It is the type argument of `Tx<'_, DB>`. If an alias hides that argument, it is a projection.
    fn database(&self) -> Result<TokenStream> {
        let Self { generics, tx, input, .. } = self;
        let written = last_segment(tx).and_then(|segment| match &segment.arguments {
            PathArguments::AngleBracketed(arguments) => {
                arguments.args.iter().find_map(|argument| match argument {
                    GenericArgument::Type(ty) => Some(ty),
                    _ => None,
                })
            }
            _ => None,
        });
        let mut parameters = generics.params.iter().filter(|p| !matches!(p, GenericParam::Lifetime(_)));
        match (parameters.next(), parameters.next(), written) {
            (None, _, Some(ty)) => Ok(quote!(#ty)),
            (None, _, None) => {
                Ok(quote_spanned!(tx.span()=> <#tx as ::twinbox::private::TxFor<#input>>::Database))
            }
            // A projection would leave the parameter unconstrained (E0207).
            (Some(GenericParam::Type(only)), None, Some(Type::Path(ty))) if ty.path.is_ident(&only.ident) => {
                Ok(quote!(#ty))
            }
            _ => Err(Error::new_spanned(
                generics,
                "a handler can be generic only over its database: `<DB: Dialect>`",
            )),
        }
    }
}

fn parameter(argument: &FnArg) -> Result<Type> {
    match argument {
        FnArg::Typed(typed) => {
            let mut ty = (*typed.ty).clone();
            StaticLifetimes.visit_type_mut(&mut ty);
            Ok(ty)
        }
        FnArg::Receiver(receiver) => Err(Error::new_spanned(
            receiver,
            "a handler cannot take `self`: take the state as the argument `app: &App`",
        )),
    }
}

fn referent(ty: &Type, mutable: bool) -> Result<Type> {
    match ty {
        Type::Reference(reference)
            if reference.mutability.is_some() == mutable
                && !matches!(*reference.elem, Type::ImplTrait(_) | Type::Infer(_)) =>
        {
            Ok((*reference.elem).clone())
        }
        _ => Err(Error::new_spanned(ty, SHAPE)),
    }
}

fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(TypePath { path, .. }) => path.segments.last(),
        _ => None,
    }
}

/// Finds the usual wrong pairs of types by name, because the compiler's errors for them are long.
fn check_pair(tx: &Type, input: &Type, batch: Option<&LitInt>) -> Result<()> {
    let is = |ty, name| last_segment(ty).is_some_and(|segment| segment.ident == name);
    let (one, many) = (is(input, "Delivery"), is(input, "Vec"));
    if is(tx, "Transaction") {
        let message = "use `twinbox::Tx<'_, DB>` here: the runtime commits it together with the inbox row";
        return Err(Error::new_spanned(tx, message));
    }
    if is(tx, "Tx") && many {
        return Err(Error::new_spanned(tx, "use `BatchTx<'_, DB>` with `Vec<Delivery<E>>`"));
    }
    if is(tx, "BatchTx") && one {
        return Err(Error::new_spanned(tx, "use `Tx<'_, DB>` with `Delivery<E>`"));
    }
    match batch {
        Some(n) if one => Err(Error::new_spanned(n, "`batch` needs a handler that takes `Vec<Delivery<E>>`")),
        None if many => Err(Error::new_spanned(
            input,
            "a batch handler needs a limit: `#[event_handler(…, batch = 200)]`",
        )),
        _ => Ok(()),
    }
}

/// Replaces every lifetime by `'static`, because the head of an `impl` cannot have elided lifetimes.
struct StaticLifetimes;

impl VisitMut for StaticLifetimes {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        *lifetime = Lifetime::new("'static", lifetime.span());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(item: TokenStream) -> String {
        expand(quote!(consumer = "a"), item).unwrap().to_string().replace(' ', "")
    }

    fn mistakes(attr: TokenStream, item: TokenStream) -> Vec<String> {
        expand(attr, item).unwrap_err().into_iter().map(|e| e.to_string()).collect()
    }

    fn mistake(item: TokenStream) -> String {
        let [only] = &mistakes(quote!(consumer = "a"), item)[..] else { panic!("one mistake") };
        only.clone()
    }

    #[test]
    fn a_type_is_written_beside_the_function() {
        let written = written(quote! {
            #[cfg(unix)]
            #[inline]
            pub(crate) async fn invoice(
                app: &App,
                tx: &mut Tx<'_, Postgres>,
                _: Delivery<Placed>,
            ) -> HandlerResult {
                Ok(())
            }
        });
        assert!(written.starts_with("#[cfg(unix)]#[doc="), "{written}");
        assert!(written.contains("pub(crate)structinvoice{}#[cfg(unix)]impl<__S>"), "{written}");
        assert!(written.contains(
            "::twinbox::consumer::EventHandler<Postgres,__S>forinvoicewhere__S:::twinbox::Provide<App>,"
        ));
        assert!(written.contains("|app,tx,input|::std::boxed::Box::pin(invoice(app,tx,input))"), "{written}");
        assert!(!written.contains("Ok(())") && !written.contains("inline"), "{written}");
    }

    #[test]
    fn state_may_be_left_out() {
        let written = written(quote!(
            async fn f(tx: &mut Tx<'_, Postgres>, _: Delivery<E>) -> HandlerResult {}
        ));
        assert!(written.contains("Handler::new::<__S,Delivery<E>>("), "{written}");
        assert!(written.contains("|_,tx,input|::std::boxed::Box::pin(f(tx,input))"), "{written}");
    }

    #[test]
    fn the_database_may_be_a_parameter_or_behind_an_alias() {
        let generic = written(quote! {
            async fn f<DB>(tx: &mut Tx<'_, DB>, _: Delivery<E>) -> HandlerResult where DB: Dialect {}
        });
        assert!(
            generic.contains("impl<DB,__S>::twinbox::consumer::EventHandler<DB,__S>forfwhereDB:Dialect,"),
            "{generic}"
        );
        assert!(generic.contains("f::<DB>(tx,input)"), "{generic}");
        let alias = written(quote!(
            async fn f(tx: &mut PgTx<'_>, _: Delivery<E>) -> HandlerResult {}
        ));
        let projection = "<PgTx<'static>as::twinbox::private::TxFor<Delivery<E>>>::Database";
        assert!(alias.contains(&format!("EventHandler<{projection},__S>forf")), "{alias}");
    }

    #[test]
    fn other_shapes_are_refused() {
        for item in [
            quote!(
                struct Handler;
            ),
            quote!(
                fn f(tx: &mut Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {}
            ),
            quote!(
                async fn f() -> HandlerResult {}
            ),
            quote!(
                async fn f(a: &A, b: &B, tx: &mut Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {}
            ),
            quote!(
                async fn f(tx: &Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {}
            ),
            quote!(
                async fn f(tx: Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {}
            ),
            quote!(
                async fn f(_: Delivery<E>, tx: &mut Tx<'_, DB>) -> HandlerResult {}
            ),
            quote!(
                async fn f(tx: &mut impl InTransaction<DB>, _: Delivery<E>) -> HandlerResult {}
            ),
            quote!(
                async fn f(app: &mut App, tx: &mut Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {}
            ),
        ] {
            assert_eq!(mistake(item.clone()), SHAPE, "{item}");
        }
        let method = quote!(
            async fn f(&self, tx: &mut Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {}
        );
        assert_eq!(
            mistake(method),
            "a handler cannot take `self`: take the state as the argument `app: &App`"
        );
        let silent = quote!(
            async fn f(tx: &mut Tx<'_, DB>, _: Delivery<E>) {}
        );
        assert_eq!(mistake(silent), "a handler must return `HandlerResult`");
        let generic = "a handler can be generic only over its database: `<DB: Dialect>`";
        for item in [
            quote!(
                async fn f<DB, E>(tx: &mut Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {}
            ),
            quote!(
                async fn f<E>(tx: &mut Tx<'_, Postgres>, _: Delivery<E>) -> HandlerResult {}
            ),
            quote!(
                async fn f<const N: usize>(tx: &mut Tx<'_, Postgres>, _: Delivery<E>) -> HandlerResult {}
            ),
        ] {
            assert_eq!(mistake(item.clone()), generic, "{item}");
        }
    }

    #[test]
    fn wrong_pairs_of_types_are_found_by_name() {
        let handler = |tx, input, batch: bool| {
            let (tx, input): (Type, Type) = (syn::parse_str(tx).unwrap(), syn::parse_str(input).unwrap());
            let batch = batch.then(|| quote!(, batch = 200));
            let item = quote!(async fn f(tx: &mut #tx, input: #input) -> HandlerResult {});
            let error = expand(quote!(consumer = "a" #batch), item).err();
            error.map(|e| e.to_string()).unwrap_or_default()
        };
        for (tx, input, batch, expected) in [
            ("Tx<'_, DB>", "Delivery<E>", false, ""),
            ("BatchTx<'_, DB>", "Vec<Delivery<E>>", true, ""),
            ("Alias<'_>", "Orders", true, ""),
            ("sqlx::Transaction<'_, DB>", "Delivery<E>", false, "use `twinbox::Tx<'_, DB>` here"),
            (
                "twinbox::Tx<'_, DB>",
                "Vec<Delivery<E>>",
                true,
                "use `BatchTx<'_, DB>` with `Vec<Delivery<E>>`",
            ),
            ("BatchTx<'_, DB>", "Delivery<E>", true, "use `Tx<'_, DB>` with `Delivery<E>`"),
            ("Tx<'_, DB>", "Delivery<E>", true, "`batch` needs a handler that takes `Vec<Delivery<E>>`"),
            ("BatchTx<'_, DB>", "Vec<Delivery<E>>", false, "a batch handler needs a limit"),
        ] {
            let found = handler(tx, input, batch);
            assert!(
                found.starts_with(expected) && found.is_empty() == expected.is_empty(),
                "{tx} {input}: {found}"
            );
        }
    }

    #[test]
    fn attribute_and_function_are_both_checked() {
        assert_eq!(
            mistakes(
                quote!(max_attempt = 3),
                quote!(
                    fn f() {}
                )
            ),
            ["unknown option, did you mean `max_attempts`?", SHAPE]
        );
    }
}
