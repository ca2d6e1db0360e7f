//! `docs/NEVER_SEAL.md`, made from the table and the programs.

use crate::program::programs_of;
use crate::rows::WITHOUT_PROGRAM;
use flashfork_core::never_seal::{Row, Scope, TABLE};
use libtest_mimic::Failed;
use std::fmt::Write;
use std::path::Path;

/// Compares the document with what it should be; with `UPDATE=1` writes it.
pub fn is_up_to_date() -> Result<(), Failed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/NEVER_SEAL.md");
    let wanted = document();
    if std::env::var_os("UPDATE").is_some_and(|v| v == "1") {
        return Ok(std::fs::write(&path, wanted)?);
    }
    let found = std::fs::read_to_string(&path)?;
    if found != wanted {
        return Err("docs/NEVER_SEAL.md is not what the table and the programs say: \
                    UPDATE=1 cargo test -p flashfork-tests --test behaviour document"
            .into());
    }
    Ok(())
}

fn document() -> String {
    let mut text = String::from(INTRODUCTION);
    text += "\n## Memory that stays as it is\n\nThe rest of the process is sealed.\n\n";
    table(&mut text, Scope::Vma);
    text += "\n## Processes that are not sealed at all\n\nTheir forks are plain forks.\n\n";
    table(&mut text, Scope::Process);
    text += "\nRows without a program:\n\n";
    for (reason, why) in WITHOUT_PROGRAM {
        writeln!(text, "- {}: {why}.", reason.row().name).expect("writes to a string");
    }
    text += TRAPS;
    for program in programs_of("traps") {
        writeln!(
            text,
            "- [{0}](../tests/behaviour/traps/{0}.c): {1}",
            program.name,
            escaped(&first_sentence(&program.comment()))
        )
        .expect("writes to a string");
    }
    text
}

const INTRODUCTION: &str = "\
# What is never sealed, and why

Made from `TABLE` in `crates/flashfork-core/src/never_seal.rs` and from the programs in `tests/behaviour`: change those, then
`UPDATE=1 cargo test -p flashfork-tests --test behaviour document`.

`flashfork run --report FILE` says how many ranges of memory each of these applied to. The name in the first column is the one in
reports and records, and links to a small C program that shows the behaviour.
";

const TRAPS: &str = "
## Traps

What sealed memory would do otherwise than ordinary memory, if nothing were done about it. Each has a program.

";

fn table(text: &mut String, scope: Scope) {
    *text += "| name | what | why | found by |\n|---|---|---|---|\n";
    for row in TABLE.iter().filter(|row| row.scope == scope) {
        let cells = [row.what, row.why, row.found_by].map(escaped);
        writeln!(text, "| {} | {} |", linked(row), cells.join(" | ")).expect("writes to a string");
    }
}

fn linked(row: &Row) -> String {
    if WITHOUT_PROGRAM.iter().any(|(reason, _)| *reason == row.reason) {
        return row.name.to_string();
    }
    format!("[{0}](../tests/behaviour/never_seal/{0}.c)", row.name)
}

fn first_sentence(comment: &str) -> String {
    let text = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.find(". ").map_or(text.len(), |i| i + 1);
    text[..end].to_string()
}

fn escaped(text: &str) -> String {
    text.replace('*', "\\*").replace('|', "\\|")
}
