//! The table of `bench vm-memory`.

use super::measured::{Cell, Pass, Results};
use crate::host::HostCard;
use crate::size::show;
use crate::stats::Summary;
use crate::table::{ratio, render as table, time};

/// Everything, for people.
pub(super) fn render(host: &HostCard, results: &Results) -> String {
    let heading = format!(
        "{}\nGuests of {}, one word in each of {} pages of 4 KB; medians a page, each pass in a virtual machine of its own kind: a guest\n\
         just booted (1), once more (2), its clone (3), once more (4).",
        host.line(),
        show(results.size),
        results.touched()
    );
    let row = |cell: &Cell| {
        let mut row = vec![cell.access.name().to_owned(), cell.pages.name().to_owned()];
        let of = |pass| Summary::of(&results.per_page(cell, pass).flat()).map_or(String::new(), |s| time(s.p50));
        row.extend(Pass::ALL.map(of));
        let pairs =
            [(Pass::Shared, Pass::Unbacked), (Pass::Shared, Pass::BackedClone), (Pass::BackedClone, Pass::Backed)];
        row.extend(
            pairs.map(|(pass, other)| results.ratio(cell, pass, other).map_or(String::new(), |found| ratio(&found))),
        );
        row
    };
    let rows: Vec<Vec<String>> = results.cells.iter().map(row).collect();
    let headers = ["access", "pages", "1", "2", "3", "4", "3 ÷ 1", "3 ÷ 4", "4 ÷ 2"];
    let table: Vec<_> = table(&headers, &rows, 2).lines().map(|line| line.trim_end().to_owned()).collect();
    let mut parts = vec![heading, table.join("\n")];
    parts.extend(host.warning());
    parts.extend(results.notes.iter().cloned());
    parts.join("\n\n")
}
