//! The table of `bench write-fraction`.

use super::blocks::Change;
use super::runs::Results;
use crate::host::HostCard;
use crate::size::show;
use crate::stats::median;
use crate::table::{render, three_figures};
use crate::warnings;

/// The paper's section 4: program, machine, share changed and of what.
pub const PAPER: [(&str, f64, &str); 5] = [
    ("Franz Lisp, ABSTRIPS planner (VAX-11/750)", 0.23, "pages of 512 bytes"),
    ("Franz Lisp, ABSTRIPS planner (VAX-11/750)", 123_942.0 / 613_376.0, "bytes"),
    ("GNU Emacs, Towers of Hanoi (VAX-11/750)", 0.35, "bytes"),
    ("GNU Emacs, Towers of Hanoi (3B2)", 0.30, "bytes"),
    ("GNU Emacs, Towers of Hanoi (HP 9000)", 0.48, "bytes"),
];

/// Everything, for people.
pub(super) fn render_all(host: &HostCard, results: &Results) -> String {
    let percent = |share: f64| format!("{} %", three_figures(share * 100.0));
    let rows: Vec<Vec<String>> = results
        .changes
        .iter()
        .map(|(name, changes)| {
            let of = |get: &dyn Fn(&Change) -> f64| median(&mut changes.iter().map(get).collect::<Vec<f64>>());
            let mut row = vec![
                name.clone(),
                show(of(&|change| change.bytes as f64) as u64),
                show(of(&|change| change.changed_bytes as f64) as u64),
                percent(of(&Change::byte_share)),
            ];
            row.extend((0..3).map(|index| percent(of(&|change| change.block_shares()[index]))));
            row
        })
        .collect();
    let headers = [
        "program",
        "in use",
        "bytes changed",
        "of the bytes",
        "of the 4 KB pages",
        "of 64 KB blocks",
        "of 2 MB blocks",
    ];
    let paper: Vec<Vec<String>> =
        PAPER.iter().map(|&(what, share, of)| vec![what.to_owned(), percent(share), of.to_owned()]).collect();
    let mut parts = vec![
        host.line(),
        format!(
            "Writable private memory that differs at the second look (medians of the runs)\n{}",
            render(&headers, &rows, 1)
        ),
        format!("In 1988\n{}", render(&["program", "changed", "of the"], &paper, 1)),
    ];
    parts.extend(warnings::of_host(host));
    parts.extend(results.missing.iter().map(|missing| format!("left out: {}: {}", missing.cell, missing.reason)));
    parts.join("\n\n")
}
