//! What the compiler says to the usual mistakes. After a change run `TRYBUILD=overwrite cargo test -p
//! integration-tests ui::` and read every message as its reader would: it has to say what to write instead.

/// One test, because all files are checked by one run of cargo. It needs no network: what they depend on is
/// what the workspace's lock file names.
#[test]
fn every_mistake_is_told_with_what_to_write_instead() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
