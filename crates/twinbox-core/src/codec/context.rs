//! The context of a payload: its purpose and its row.
use crate::message::{self, Message, header};
use std::borrow::Cow;

/// The purpose of a payload. What was encrypted for one purpose does not decrypt for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PayloadPurpose {
    /// The payload of a message.
    Message,
    /// The body of the request of a side effect.
    SideEffect,
    /// The body of the stored response of an operation with a key.
    Response,
}

impl PayloadPurpose {
    /// Returns the word for this purpose.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::SideEffect => "side_effect",
            Self::Response => "response",
        }
    }
}

/// The context of a payload: its purpose, its service, and the columns of its row to which it is bound.
///
/// It is the same for encoding and decoding. An encryption takes
/// [`associated_data`](Self::associated_data): then a payload decrypts in its own row alone, and only as long
/// as nobody changes those columns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PayloadContext<'a> {
    /// The purpose of the payload.
    pub purpose: PayloadPurpose,
    /// The service that publishes the message, plans the side effect, or stores the response.
    pub source: &'a str,
    /// The key of the message or of the side effect. An encryption can choose its own key by it. A response
    /// has none.
    pub key: Option<&'a str>,
    columns: Vec<Column<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column<'a> {
    name: &'static str,
    /// None: `NULL`.
    value: Option<Cow<'a, [u8]>>,
}

impl<'a> PayloadContext<'a> {
    /// Creates a context that is bound to no column yet.
    #[doc(hidden)]
    pub fn new(purpose: PayloadPurpose, source: &'a str, key: Option<&'a str>) -> Self {
        Self { purpose, source, key, columns: Vec::new() }
    }

    /// Binds the payload to one more column.
    #[doc(hidden)]
    pub fn bind(mut self, name: &'static str, value: Option<impl Into<Cow<'a, [u8]>>>) -> Self {
        self.columns.push(Column { name, value: value.map(Into::into) });
        self
    }

    /// Creates the context of a message. `content_type` is that of the payload before it was encoded.
    ///
    /// Only attributes that a message has when it is published, and keeps wherever it goes.
    #[doc(hidden)]
    pub fn of_message(
        source: &'a str,
        id: &'a str,
        event_type: &'a str,
        version: u32,
        key: Option<&'a str>,
        subject: Option<&'a str>,
        content_type: &'a str,
    ) -> Self {
        // It travels in a header, and a broker may cut blanks off the ends of one.
        let content_type = content_type.trim();
        Self::new(PayloadPurpose::Message, source, key)
            .bind("id", Some(id.as_bytes()))
            .bind("type", Some(event_type.as_bytes()))
            .bind("version", Some(version.to_string().into_bytes()))
            .bind("key", key.map(str::as_bytes))
            .bind("subject", subject.map(str::as_bytes))
            .bind("content_type", Some(content_type.as_bytes()))
    }

    /// Returns the columns that the payload is bound to, with their values: texts in UTF-8, numbers in
    /// decimal. `None` is `NULL`.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, Option<&[u8]>)> {
        self.columns.iter().map(|column| (column.name, column.value.as_deref()))
    }

    /// Returns the purpose, the source and the columns as bytes, for the associated data of an encryption.
    /// Two contexts that differ have different bytes: each part has its length before it.
    pub fn associated_data(&self) -> Vec<u8> {
        let mut data: Vec<u8> = Vec::new();
        let mut add = |part: Option<&[u8]>| {
            data.extend_from_slice(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            data.extend_from_slice(part.unwrap_or_default());
        };
        add(Some(self.purpose.as_str().as_bytes()));
        add(Some(self.source.as_bytes()));
        for (name, value) in self.columns() {
            add(Some(name.as_bytes()));
            add(value);
        }
        data
    }
}

impl<'a> From<&'a Message> for PayloadContext<'a> {
    /// Returns the context of a message whose payload is encoded.
    fn from(m: &'a Message) -> Self {
        let content_type = m.header(header::CONTENT_TYPE).unwrap_or(message::JSON);
        let (key, subject) = (m.key.as_deref(), m.subject.as_deref());
        Self::of_message(&m.source, &m.id, &m.event_type, m.version, key, subject, content_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of the form would make every stored payload unreadable.
    #[test]
    fn the_associated_data_has_each_part_after_its_length_and_the_purpose_first() {
        let context = PayloadContext::new(PayloadPurpose::Response, "shop", None)
            .bind("slot", Some(&b"s"[..]))
            .bind("principal", Some(Vec::<u8>::new()))
            .bind("key", None::<&[u8]>);
        let part = |text: &str| [&(text.len() as u64).to_be_bytes()[..], text.as_bytes()].concat();
        let expected = [
            part("response"),
            part("shop"),
            part("slot"),
            part("s"),
            part("principal"),
            part(""),
            part("key"),
            vec![0xff; 8],
        ];
        assert_eq!(context.associated_data(), expected.concat());
    }

    #[test]
    fn contexts_that_differ_have_different_associated_data() {
        let of = |purpose, source: &'static str, a: &'static str, b: Option<&'static str>| {
            let context = PayloadContext::new(purpose, source, None).bind("a", Some(a.as_bytes()));
            context.bind("b", b.map(str::as_bytes)).associated_data()
        };
        let data = of(PayloadPurpose::Message, "shop", "12", Some("3"));
        for other in [
            of(PayloadPurpose::SideEffect, "shop", "12", Some("3")),
            of(PayloadPurpose::Message, "shops", "12", Some("3")),
            // The same letters, cut at another place.
            of(PayloadPurpose::Message, "shop", "1", Some("23")),
            of(PayloadPurpose::Message, "shop", "123", Some("")),
            of(PayloadPurpose::Message, "shop", "123", None),
        ] {
            assert_ne!(other, data);
        }
        let named = |name: &'static str| {
            let context = PayloadContext::new(PayloadPurpose::Message, "shop", None);
            context.bind(name, None::<&[u8]>).associated_data()
        };
        assert_ne!(named("a"), named("b"));
    }

    #[test]
    fn a_message_has_the_context_that_it_was_published_with() {
        let text = "text/plain";
        for (published, arrives) in [(message::JSON, None), (text, Some(text)), (" text/plain ", Some(text))]
        {
            let context = PayloadContext::of_message("shop", "7", "a.b", 2, Some("k"), Some("s"), published);
            let mut draft = crate::Draft::raw("a.b", 2, "").id("7").key("k").subject("s");
            draft.fields.content_type = message::ENCODED.to_owned();
            let arrives = arrives.map(|text| (header::CONTENT_TYPE.to_owned(), text.to_owned()));
            draft.fields.headers.extend(arrives);
            assert_eq!(PayloadContext::from(&draft.into_message("shop")), context);
        }
    }
}
