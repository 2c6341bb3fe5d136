//! Compile errors of the usual mistakes. After a change run `TRYBUILD=overwrite cargo xtask test ui` and read
//! every message as a user would: it must name the code to write instead.

/// One test, because one run of cargo checks all files. It needs no network: the workspace's lock file names
/// every dependency.
#[test]
fn every_compile_error_names_the_code_to_write_instead() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
