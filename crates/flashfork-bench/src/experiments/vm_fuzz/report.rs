//! The table of `bench vm-fuzz`.

use serde_json::{Value, json};

use super::{EXPERIMENT, Way};
use flashfork_measure::experiment::page;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::stats::{Ratio, ratio_of_medians};
use flashfork_measure::target::{self, Bound, Target, Unit};
use flashfork_terminal::size::show;
use flashfork_terminal::table::{render as table, time, time_range};

/// What the promise is about.
const PAGES: u64 = 200;
const SIZE: u64 = 1 << 30;

/// Everything, for people.
pub(super) fn render_all(document: &Document) -> String {
    let own = || document.records.iter().filter(|record| record.experiment == EXPERIMENT);
    let Some(size) = own().find_map(|record| number(record, "size")) else { return page(document, []) };
    let mut pages: Vec<u64> = own().filter_map(|record| number(record, "pages")).collect();
    pages.sort_unstable();
    pages.dedup();
    let heading = format!("Executions that write so many pages of a tiny guest of {}.", show(size));
    let row = |pages: u64, way: Way| {
        let record = find(document, pages, way)?;
        Some(vec![
            pages.to_string(),
            way.name().to_owned(),
            time(record.p50),
            time_range(record.min, record.p90),
            format!("{:.0}", 1e6 / record.p50),
            ratio(document, pages, way).map_or(String::new(), |found| found.to_string()),
            record.n.to_string(),
        ])
    };
    let rows: Vec<_> = pages.iter().flat_map(|pages| Way::ALL.map(|way| row(*pages, way))).flatten().collect();
    let headers = ["pages", "before each", "median", "least–90 %", "a second", "÷ dropping", "n"];
    let mut parts = vec![format!("{heading}\n{}", table(&headers, &rows, 2))];
    let target = Target {
        what: format!("tiny guest of 1G, {PAGES} pages written: copying ÷ dropping"),
        bound: Bound::AtMost(0.3),
        unit: Unit::Times,
        measured: if size == SIZE { ratio(document, PAGES, Way::Copy) } else { None },
    };
    if target.measured.is_some() {
        parts.push(format!("Promises\n{}", target::render(&[target])));
    }
    page(document, parts)
}

fn number(record: &Record, name: &str) -> Option<u64> {
    record.chosen.get(name).and_then(Value::as_u64)
}

fn find(document: &Document, pages: u64, way: Way) -> Option<&Record> {
    document.find(EXPERIMENT, way.name(), &[("pages", json!(pages))])
}

/// As many times as long as by dropping.
fn ratio(document: &Document, pages: u64, way: Way) -> Option<Ratio> {
    let rounds = |way| find(document, pages, way).map(Record::rounds);
    ratio_of_medians(&rounds(way)?, &rounds(Way::Drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;

    #[test]
    fn ways_stand_below_each_other_and_the_promise_is_about_1g() {
        let page = |size: u64| {
            let records = [(Way::Copy, 200.0), (Way::Drop, 1000.0)].map(|(way, figure)| {
                let chosen = [("pages", json!(PAGES)), ("size", json!(size))];
                Record::new(EXPERIMENT, way.name(), chosen, "us", vec![figure; 6]).unwrap()
            });
            render_all(&Document::new(HostCard::read().unwrap(), records.to_vec()))
        };
        let shown = page(SIZE);
        assert!(["0.20 ×", "5000", "Promises", "yes"].iter().all(|wanted| shown.contains(wanted)), "{shown}");
        assert!(!page(SIZE / 2).contains("Promises"));
    }
}
