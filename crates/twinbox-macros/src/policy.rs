//! The options of `#[event_handler]`, and the policy that they make.
use crate::options::{self, at_least_one, dotted, literal, set};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Error, LitInt, LitStr, Path, Result,
    meta::ParseNestedMeta,
    parse::{ParseStream, Parser},
};

const CONSUMER_BYTES_MAX: usize = 120;
const OPTIONS: [&str; 8] =
    ["consumer", "max_attempts", "retry", "order", "batch", "concurrency", "timeout", "crash_limit"];

#[derive(Default)]
struct Options {
    consumer: Option<LitStr>,
    max_attempts: Option<LitInt>,
    retry: Option<TokenStream>,
    order: Option<TokenStream>,
    batch: Option<LitInt>,
    concurrency: Option<LitInt>,
    timeout: Option<TokenStream>,
    crash_limit: Option<LitInt>,
}

impl Options {
    fn read(&mut self, meta: &ParseNestedMeta) -> Result<()> {
        match options::name(meta).as_str() {
            "consumer" => set(&mut self.consumer, meta, consumer),
            "max_attempts" => set(&mut self.max_attempts, meta, at_least_one),
            "retry" => set(&mut self.retry, meta, retry),
            "order" => set(&mut self.order, meta, order),
            "batch" => set(&mut self.batch, meta, at_least_one),
            "concurrency" => set(&mut self.concurrency, meta, at_least_one),
            "timeout" => set(&mut self.timeout, meta, duration),
            "crash_limit" => set(&mut self.crash_limit, meta, at_least_one),
            _ => Err(options::unknown(meta, &OPTIONS)),
        }
    }
}

/// The policy of a handler, as an expression.
pub(crate) struct Policy {
    tokens: TokenStream,
    /// The literal of `batch`, for errors that point at it.
    pub(crate) batch: Option<LitInt>,
}

impl Policy {
    pub(crate) fn parse(attr: TokenStream) -> Result<Self> {
        let mut options = Options::default();
        options::read(|logic| syn::meta::parser(logic).parse2(attr), |meta| options.read(meta))?;
        let consumer = options.consumer.ok_or_else(|| {
            let message =
                "`consumer = \"…\"` is required: the inbox stores this name, so it must never change";
            Error::new(Span::call_site(), message)
        })?;
        let (max_attempts, retry) = (options.max_attempts.iter(), options.retry.iter());
        let order = options.order.iter();
        let (batch, concurrency) = (options.batch.iter(), options.concurrency.iter());
        let (timeout, crash_limit) = (options.timeout.iter(), options.crash_limit.iter());
        let tokens = quote! {
            ::twinbox::Policy::new(#consumer)
                #(.max_attempts(#max_attempts))*
                #(.retry(#retry))*
                #(.order(#order))*
                #(.batch(#batch))*
                #(.concurrency(#concurrency))*
                #(.timeout(#timeout))*
                #(.crash_limit(#crash_limit))*
        };
        Ok(Self { tokens, batch: options.batch })
    }
}

impl ToTokens for Policy {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.tokens.to_tokens(tokens);
    }
}

fn consumer(input: ParseStream) -> Result<LitStr> {
    dotted(input, "`billing.invoice`", CONSUMER_BYTES_MAX)
}

/// Parses the name of a profile, or the path of a constant.
fn retry(input: ParseStream) -> Result<TokenStream> {
    if !input.peek(LitStr) {
        let expected = "expected \"vendor\", \"client\" or a constant of type `RetryPolicy`";
        return input.parse::<Path>().map(|path| quote!(#path)).map_err(|e| Error::new(e.span(), expected));
    }
    let profile: LitStr = input.parse()?;
    match profile.value().as_str() {
        "vendor" => Ok(quote!(::twinbox::RetryPolicy::vendor())),
        "client" => Ok(quote!(::twinbox::RetryPolicy::client())),
        _ => Err(Error::new_spanned(
            profile,
            "expected \"vendor\" or \"client\"; for other delays name a constant of type `RetryPolicy`",
        )),
    }
}

fn order(input: ParseStream) -> Result<TokenStream> {
    let expected = "expected \"key\" or \"none\"";
    let order: LitStr = literal(input, expected)?;
    match order.value().as_str() {
        "key" => Ok(quote!(::twinbox::consumer::DeliveryOrder::Key)),
        "none" => Ok(quote!(::twinbox::consumer::DeliveryOrder::None)),
        _ => Err(Error::new_spanned(order, expected)),
    }
}

fn duration(input: ParseStream) -> Result<TokenStream> {
    let expected = "expected a duration, like \"500ms\", \"30s\" or \"5m\"";
    let written: LitStr = literal(input, expected)?;
    match millis(&written.value()) {
        Some(millis @ 1..) => Ok(quote!(::core::time::Duration::from_millis(#millis))),
        _ => Err(Error::new_spanned(written, expected)),
    }
}

fn millis(written: &str) -> Option<u64> {
    let (digits, unit) = written.split_at(written.bytes().take_while(u8::is_ascii_digit).count());
    let unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(attr: &str) -> std::result::Result<String, Vec<String>> {
        Policy::parse(attr.parse().unwrap())
            .map(|policy| policy.tokens.to_string().replace(' ', ""))
            .map_err(|all| all.into_iter().map(|e| e.to_string()).collect())
    }

    #[test]
    fn options_become_builder_calls() {
        assert_eq!(parse("consumer = \"a\"").unwrap(), "::twinbox::Policy::new(\"a\")");
        let all = "consumer = \"billing.invoice\", crash_limit = 3, timeout = \"30s\", concurrency = 8, \
            batch = 200, order = \"key\", max_attempts = 12";
        assert_eq!(
            parse(all).unwrap(),
            "::twinbox::Policy::new(\"billing.invoice\").max_attempts(12)\
             .order(::twinbox::consumer::DeliveryOrder::Key).batch(200)\
             .concurrency(8).timeout(::core::time::Duration::from_millis(30000u64)).crash_limit(3)"
        );
    }

    #[test]
    fn retry_is_a_profile_or_a_constant() {
        let retry = |written: &str| parse(&format!("consumer = \"a\", retry = {written}"));
        let policy = |retry: &str| Ok(format!("::twinbox::Policy::new(\"a\").retry({retry})"));
        assert_eq!(retry("\"vendor\""), policy("::twinbox::RetryPolicy::vendor()"));
        assert_eq!(retry("\"client\""), policy("::twinbox::RetryPolicy::client()"));
        assert_eq!(retry("crate::PATIENT"), policy("crate::PATIENT"));
        let other =
            "expected \"vendor\" or \"client\"; for other delays name a constant of type `RetryPolicy`";
        assert_eq!(retry("\"patient\"").unwrap_err(), [other]);
        let expected = "expected \"vendor\", \"client\" or a constant of type `RetryPolicy`";
        assert_eq!(retry("5").unwrap_err(), [expected]);
    }

    #[test]
    fn consumer_is_required() {
        let required =
            ["`consumer = \"…\"` is required: the inbox stores this name, so it must never change"];
        assert_eq!(parse("").unwrap_err(), required);
        assert_eq!(parse("batch = 1").unwrap_err(), required);
    }

    #[test]
    fn each_value_is_checked() {
        let bad = "consumer = \"Billing\", order = \"keys\", timeout = \"30\", batch = 0, concurency = 1";
        assert_eq!(
            parse(bad).unwrap_err(),
            [
                "expected words of a-z, 0-9, `_` and `-` joined by dots, like `billing.invoice`",
                "expected \"key\" or \"none\"",
                "expected a duration, like \"500ms\", \"30s\" or \"5m\"",
                "expected a number from 1 to 4294967295",
                "unknown option, did you mean `concurrency`?",
            ]
        );
        assert!(parse(&format!("consumer = {:?}", "a".repeat(120))).is_ok());
        let long = parse(&format!("consumer = {:?}", "a".repeat(121)));
        assert_eq!(long.unwrap_err(), ["the name has 121 bytes, more than the limit of 120"]);
    }

    #[test]
    fn durations_have_a_unit() {
        for (written, expected) in [
            ("1ms", Some(1)),
            ("030s", Some(30_000)),
            ("5m", Some(300_000)),
            ("0s", Some(0)),
            ("", None),
            ("s", None),
            ("30", None),
            ("30 s", None),
            ("-1s", None),
            ("1.5s", None),
            ("1h", None),
            ("307445734561826m", None),
        ] {
            assert_eq!(millis(written), expected, "{written}");
        }
        assert!(parse("consumer = \"a\", timeout = \"0s\"").is_err());
    }
}
