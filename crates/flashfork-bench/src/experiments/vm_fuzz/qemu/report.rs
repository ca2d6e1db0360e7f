//! The table of `bench vm-fuzz --qemu`.

use serde_json::Value;

use super::found::Measure;
use crate::subjects::Method;
use flashfork_measure::experiment::page;
use flashfork_measure::record::Document;
use flashfork_measure::stats::{Ratio, ratio_of_medians};
use flashfork_measure::target::{self, Bound, Target, Unit};
use flashfork_terminal::size::show;
use flashfork_terminal::table::{render as table, time, time_range};

/// What the promise is about.
const SIZE: u64 = 1 << 30;

/// Everything, for people, if these are such records.
pub(in super::super) fn render(document: &Document) -> Option<String> {
    let plain = Method::ALL.into_iter().find_map(|method| Measure::Execution.find(document, method))?;
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or_default();
    let (size, resident) = (number(plain.chosen.get("size")), number(plain.observed.get("resident_bytes")));
    let row = |method: Method| {
        let execution = Measure::Execution.find(document, method)?;
        Some(vec![
            method.name().to_owned(),
            Measure::Fork.find(document, method).map_or(String::new(), |record| time(record.p50)),
            time(execution.p50),
            time_range(execution.min, execution.p90),
            format!("{:.0}", 1e6 / execution.p50),
            faster(document, method).map_or(String::new(), |found| found.to_string()),
            execution.n.to_string(),
        ])
    };
    let rows: Vec<_> = Method::ALL.into_iter().filter_map(row).collect();
    let headers = ["way", "fork", "execution", "least–90 %", "a second", "÷ fork-4k", "n"];
    let mut parts = vec![format!(
        "System calls of a Linux guest of {} in QEMU (TCG), which had {} in memory: a child of QEMU makes those of each input.\n\
         On-demand-fork (EuroSys 2021), figure 10, with 188 MB: 91 executions a second by fork, 145 by theirs, × 1.59.\n{}",
        show(size),
        show(resident),
        table(&headers, &rows, 1)
    )];
    let target = Target {
        what: "QEMU with a guest of 1G, executions a second: sealed ÷ fork on 4 KB pages".into(),
        bound: Bound::AtLeast(1.6),
        unit: Unit::Times,
        measured: if size == SIZE { faster(document, Method::Seal) } else { None },
    };
    if target.measured.is_some() {
        parts.push(format!("Promises\n{}", target::render(&[target])));
    }
    Some(page(document, parts))
}

/// How many times as many executions it makes as plain forks on 4 KB pages.
fn faster(document: &Document, method: Method) -> Option<Ratio> {
    let rounds = |method| Measure::Execution.find(document, method).map(|record| record.rounds());
    ratio_of_medians(&rounds(Method::Fork4k)?, &rounds(method)?)
}
