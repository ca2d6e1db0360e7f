//! `docs/NEVER_SEAL.md`, `docs/FORK_SAFETY.md` and `docs/ENVIRONMENT.md`, made from the tables and the programs.

use crate::{program::programs_of, rows::WITHOUT_PROGRAM};
use flashfork_core::environment;
use flashfork_core::never_seal::{Row, Scope, TABLE};
use libtest_mimic::Failed;
use std::{fmt::Write, path::Path};

/// Compares the documents with what they should be; with `UPDATE=1` writes them.
pub fn are_up_to_date() -> Result<(), Failed> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let all = [("NEVER_SEAL.md", never_seal()), ("FORK_SAFETY.md", fork_safety()), ("ENVIRONMENT.md", variables())];
    for (name, wanted) in all {
        let path = docs.join(name);
        if std::env::var_os("UPDATE").is_some_and(|v| v == "1") {
            std::fs::write(&path, wanted)?;
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&wanted) {
            return Err(format!(
                "docs/{name} is not what the tables and the programs say: UPDATE=1 cargo test -p flashfork-tests --test behaviour document"
            )
            .into());
        }
    }
    Ok(())
}

fn never_seal() -> String {
    let mut text = String::from(INTRODUCTION);
    text += "\n## Memory that stays as it is\n\nThe rest of the process is sealed.\n\n";
    table(&mut text, Scope::Vma);
    text += "\n## Processes that are not sealed at all\n\nTheir forks are plain forks.\n\n";
    table(&mut text, Scope::Process);
    text += "\nRows without a program:\n\n";
    for (reason, why) in WITHOUT_PROGRAM {
        text += &item(&format!("{}: {why}.", reason.row().name));
    }
    text + TRAPS
}

fn variables() -> String {
    let mut text = String::from(VARIABLES) + "\n| variable | values | meaning | without it |\n|---|---|---|---|\n";
    for variable in &environment::TABLE {
        let (mut name, mut without) = (format!("`{}`", variable.name()), variable.without);
        for value in variable.values {
            let more = value.more.map_or(String::new(), |more| format!(" ([{more}]({more}))"));
            writeln!(text, "| {name} | {} | {}{more} | {without} |", value.value, value.meaning)
                .expect("writes to a string");
            (name, without) = (String::new(), "");
        }
    }
    text.replace("|  |", "| |") + OTHER_VARIABLES
}

/// What a program of `fork_safety/` says with its line `clone:`, and the table that it belongs to.
const KINDS: [(&str, &str); 4] = [
    ("shares", "Common to template and clones"),
    ("renew", "Copied, and to be renewed"),
    ("missing", "Not there in a clone"),
    ("own", "Copied, and a clone's own"),
];

fn fork_safety() -> String {
    let mut text = String::from(FORK_SAFETY);
    let programs = programs_of("fork_safety");
    for (kind, title) in KINDS {
        write!(text, "\n## {title}\n\n| what | what happens | what to do |\n|---|---|---|\n")
            .expect("writes to a string");
        for program in programs.iter().filter(|program| program.directive("clone").as_deref() == Some(kind)) {
            let comment = program.comment();
            let (about, to_do) =
                (comment.split("clone:").next().unwrap_or(""), comment.split("do:").nth(1).unwrap_or(""));
            let sentence = first_sentence(about);
            let (what, happens) =
                sentence.split_once(": ").expect("a program of fork_safety says `what: what happens`");
            let to_do = to_do.split_whitespace().collect::<Vec<_>>().join(" ");
            let cells = [happens, to_do.as_str()].map(escaped).join(" | ");
            writeln!(text, "| [{what}](../tests/behaviour/fork_safety/{}.c) | {cells} |", program.name)
                .expect("writes to a string");
        }
    }
    text + REFUSED
}

/// Every program of `fork_safety/` is in one of the tables.
pub fn every_program_has_a_kind() -> Result<(), Failed> {
    let known = |kind: Option<String>| KINDS.iter().any(|(known, _)| kind.as_deref() == Some(known));
    match programs_of("fork_safety").into_iter().find(|p| !known(p.directive("clone")) || p.directive("do").is_none()) {
        Some(p) => Err(format!(
            "fork_safety/{}.c: its comment has no line `clone: shares|renew|missing|own`, or no `do:`",
            p.name
        )
        .into()),
        None => Ok(()),
    }
}

const FORK_SAFETY: &str = "\
# What a clone shares, and what it must renew

A clone of a process is a fork of it, whatever the engine. Nothing here comes from sealing: all of
it is as old as fork(2). But a template lives long and has many clones, so what a short-lived child
may overlook matters here. Each row links to a small C program that shows the behaviour in a clone
of a sealed process.

This document is made from the programs in `tests/behaviour/fork_safety`. Change those, then run
`UPDATE=1 cargo test -p flashfork-tests --test behaviour document`.
";

const REFUSED: &str = "
## What is refused

Two kinds of memory are not sealed: memory of processes in which somebody else writes while it is
moved, and memory that would not be the same afterwards. [NEVER_SEAL.md](NEVER_SEAL.md) lists each
case with its reason and its program. Forks are plain there, and everything above holds for them,
too.
";

const VARIABLES: &str = "\
# Environment

This document is made from `TABLE` in `crates/flashfork-core/src/environment.rs`. Change that, then
run `UPDATE=1 cargo test -p flashfork-tests --test behaviour document`.

The libraries read no environment variable. The shim (`libflashfork_preload.so`) reads these once,
when it is loaded:
";

const OTHER_VARIABLES: &str = r"
If a value is wrong, or `odf` is not available, one line says so, once in a tree of programs. The
first program that says so replaces the value in its environment by what it took it for (`fork`,
`refuse`, no path).

The first three variables are also the defaults of the options of `flashfork run`.

A program that AFL starts as a fork server (descriptors 198 and 199 are open) is sealed before its
first fork, whatever `auto` would say, because it is warm then. If its forks are on demand it needs
no seal. `AFL_PRELOAD=…/libflashfork_preload.so` is all that you have to set.

`flashfork run` and `warm` put `verify_asan_link_order=0` before what is in `ASAN_OPTIONS`: gcc's
AddressSanitizer refuses to start when another library, the shim, comes before it. If no statistics
can be kept (no memory, `ulimit -f 0`) the program runs all the same, and one line says so.

`flashfork warm` sets `NUMEXPR_NUM_THREADS=1` for the program unless the variable is set, because
threads that Python's numexpr starts on import would forbid clones.

The `flashfork` command reads the usual variables:

- `LD_PRELOAD`: what is there stays, behind the shim;
- `HOME`, `XDG_CACHE_HOME` (kernels, cost model), `XDG_STATE_HOME` (records);
- `XDG_RUNTIME_DIR`: the names of templates and the VM daemon's socket; `/tmp/flashfork-UID` if it
  is not set. The VM daemon of root is at `/run/flashfork`;
- `PATH`, `TMPDIR`, `NO_COLOR`.

Tests read `FLASHFORK_TEST_ALL`, `FLASHFORK_SHIM`, `FLASHFORK_ODF_KERNEL` (a bzImage with on-demand
fork, without which tests on it are skipped) and `FLASHFORK_ODF_STEPS` (how long the model checker
runs on it).
";

const INTRODUCTION: &str = "\
# What is never sealed, and why

This document is made from `TABLE` in `crates/flashfork-core/src/never_seal.rs` and from the
programs in `tests/behaviour`. Change those, then run
`UPDATE=1 cargo test -p flashfork-tests --test behaviour document`.

`flashfork run --report FILE` says to how many ranges of memory each of these applied. The name in
the first column is the one in reports and records. It links to a small C program that shows the
behaviour.
";

const TRAPS: &str = "
## Traps

If nothing were done about it, sealed memory would differ from ordinary memory in many more ways.
Each has a program in [tests/behaviour/traps](../tests/behaviour/traps), which begins by saying what
it shows: for example that [discarded memory](../tests/behaviour/traps/dontneed.c) reads zeros.
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

/// An item of a list, wrapped at 100 columns.
fn item(text: &str) -> String {
    const WIDTH: usize = 100;
    let (mut out, mut width) = (String::from("-"), 1);
    for word in text.split_whitespace() {
        let len = word.chars().count();
        let (separator, begin) = if width > 1 && width + 1 + len > WIDTH { ("\n  ", 1) } else { (" ", width) };
        out += separator;
        out += word;
        width = begin + 1 + len;
    }
    out + "\n"
}

fn first_sentence(comment: &str) -> String {
    let text = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.find(". ").map_or(text.len(), |i| i + 1);
    text[..end].to_string()
}

fn escaped(text: &str) -> String {
    text.replace('*', "\\*").replace('|', "\\|")
}
