//! The grid as a table.

use serde_json::Value;

use super::subject::Who;
use crate::experiment::page;
use crate::record::Document;
use crate::size::show;
use crate::table::{render, time};

/// What `auto` promises: at most so many times the best.
pub(super) const PROMISE: f64 = 1.1;

/// One cell of the grid.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub thp: bool,
    pub size: u64,
    pub dirty: f64,
    pub forks: u64,
    /// Microseconds a cycle over all forks, and over the latest, in the order of [`Who::ALL`].
    pub all: [f64; 3],
    pub latest: [f64; 3],
}

impl Cell {
    /// How many times as long as the best engine without a policy one takes, by the latest cycles or by all.
    pub fn ratio(&self, who: Who, latest: bool) -> f64 {
        let times = if latest { &self.latest } else { &self.all };
        times[who as usize] / times[Who::Fork as usize].min(times[Who::Seal as usize])
    }
}

/// The cells of which every engine has a figure.
pub(super) fn cells(document: &Document) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for record in &document.records {
        let get = |name: &str| record.params.get(name);
        let (Some(thp), Some(size), Some(dirty), Some(forks)) = (
            get("thp").and_then(Value::as_bool),
            get("size").and_then(Value::as_u64),
            get("dirty_percent").and_then(Value::as_f64),
            get("forks").and_then(Value::as_u64),
        ) else {
            continue;
        };
        let Some(who) = Who::ALL.into_iter().find(|who| who.name() == record.method) else { continue };
        let same = |c: &&mut Cell| (c.thp, c.size, c.forks) == (thp, size, forks) && c.dirty.total_cmp(&dirty).is_eq();
        if cells.iter_mut().find(same).is_none() {
            cells.push(Cell { thp, size, dirty, forks, all: [f64::NAN; 3], latest: [f64::NAN; 3] });
        }
        if let Some(cell) = cells.iter_mut().find(same) {
            let times =
                if get("measure").and_then(Value::as_str) == Some("latest") { &mut cell.latest } else { &mut cell.all };
            times[who as usize] = record.p50;
        }
    }
    cells.retain(|cell| cell.all.iter().chain(&cell.latest).all(|time| time.is_finite()));
    cells
}

pub(super) fn render_all(document: &Document) -> String {
    let cells = cells(document);
    let rows: Vec<Vec<String>> = cells
        .iter()
        .map(|c| {
            vec![
                if c.thp { "THP" } else { "4 KB" }.to_owned(),
                show(c.size),
                format!("{} %", c.dirty),
                c.forks.to_string(),
                time(c.all[0]),
                time(c.all[1]),
                time(c.all[2]),
                format!("{:.2}", c.ratio(Who::Auto, false)),
                format!("{:.2}", c.ratio(Who::Auto, true)),
            ]
        })
        .collect();
    let headers =
        ["pages", "size", "written", "forks", "fork", "seal", "auto", "auto : best, all", "auto : best, latest"];
    let parts = [
        "Time of a cycle (writes, fork, a clone that ends at once; seals included) over all forks so far; auto against the better of \
         the other two, over all forks and over those since the row before. Medians."
            .to_owned(),
        render(&headers, &rows, 1),
        kept(&cells, false),
        kept(&cells, true),
    ];
    page(document, parts)
}

/// In how many cells the promise was kept.
fn kept(cells: &[Cell], latest: bool) -> String {
    let over = cells.iter().filter(|c| c.ratio(Who::Auto, latest) > PROMISE).count();
    let worst = cells.iter().map(|c| c.ratio(Who::Auto, latest)).fold(0.0, f64::max);
    let what = if latest { "over the latest forks" } else { "over all forks" };
    format!("auto {what}: above {PROMISE} times the best in {over} of {} cells, {worst:.2} at worst", cells.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_held_against_the_better_of_the_others() {
        let c = Cell { thp: false, size: 1, dirty: 0.0, forks: 1, all: [10.0, 20.0, 12.0], latest: [30.0, 20.0, 21.0] };
        assert!((c.ratio(Who::Auto, false) - 1.2).abs() < 1e-9 && (c.ratio(Who::Auto, true) - 1.05).abs() < 1e-9);
        assert!((c.ratio(Who::Seal, false) - 2.0).abs() < 1e-9);
        assert!(kept(std::slice::from_ref(&c), false).contains("1 of 1 cells, 1.20 at worst"));
        assert!(kept(&[c], true).contains("0 of 1 cells"));
    }
}
