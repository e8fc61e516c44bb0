//! What must not compile, and what must.

#[test]
fn misuse_does_not_compile() {
    let tests = trybuild::TestCases::new();
    tests.pass("compile_pass/*.rs");
    tests.compile_fail("compile_fail/*.rs");
}
