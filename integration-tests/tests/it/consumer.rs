pub(crate) mod support;
