//! The `flashfork` command: parses, calls, prints.
fn main() {}
