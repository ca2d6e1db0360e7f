//! The tables of `bench vm-tree`.

use super::found::{Node, Way, What, find};
use flashfork_measure::experiment::page;
use flashfork_measure::record::Document;
use flashfork_measure::stats::ratio_of_medians;
use flashfork_terminal::size::show;
use flashfork_terminal::table::{render as table, time, time_range};

/// Everything, for people.
pub(super) fn render_all(document: &Document) -> String {
    let bytes = |way, node, what| {
        find(document, way, node, what).map_or(String::new(), |record| show(record.p50.max(0.0) as u64))
    };
    let row = |way: Way, node: Node| {
        let start = find(document, way, node, What::Start)?;
        let boots = find(document, Way::Boots, node, What::Start);
        let ratio = boots.and_then(|boots| ratio_of_medians(&start.rounds(), &boots.rounds()));
        let mut row = vec![
            way.name().to_owned(),
            node.name().to_owned(),
            time(start.p50),
            time_range(start.min, start.max),
            ratio.map_or(String::new(), |found| found.to_string()),
        ];
        row.extend([What::Own, What::Shared, What::Mapped].map(|what| bytes(way, node, what)));
        row.push(start.n.to_string());
        Some(row)
    };
    let rows: Vec<_> = Way::ALL.iter().flat_map(|way| Node::ALL.map(|node| row(*way, node))).flatten().collect();
    if rows.is_empty() {
        return page(document, []);
    }
    let headers = ["way", "node", "start", "least–most", "÷ boots", "own", "shared", "mapped (PSS)", "n"];
    page(
        document,
        [format!(
            "Three applications over a database over a kernel (HyperFork, 5.2). From the request until a template could be cloned,\n\
             or an application had its answer from the database; and memory, with kernel's and KVM's share, when all are alive:\n\
             a node's own, and what it shares with those above it. \"all\": everything, from the first request on.\n{}",
            table(&headers, &rows, 2)
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENT;
    use super::super::found::keep;
    use super::*;
    use flashfork_measure::experiment::Results;
    use flashfork_measure::host::HostCard;
    use flashfork_measure::sampling::{Ended, Series};
    use flashfork_measure::stats::Rounds;

    #[test]
    fn nodes_stand_beside_boots_of_the_same_kind() {
        let mut results = Results::new(EXPERIMENT);
        for (way, seconds) in [(Way::Tree, 1.0), (Way::Boots, 8.0)] {
            for (what, value) in [(What::Start, seconds * 1e6), (What::Own, seconds * 1048576.0)] {
                let measure = (Node::Application, what);
                let series = Series { measure, warm_up: Vec::new(), rounds: Rounds(vec![vec![value]; 6]) };
                keep(way, "their memory cgroup", &series, Ended::Rounds, &mut results).unwrap();
            }
        }
        let document = Document::new(HostCard::read().unwrap(), results.records);
        let shown = render_all(&document);
        for wanted in ["tree", "separate boots", "8.00 s", "0.12 ×", "8.0 MB"] {
            assert!(shown.contains(wanted), "{wanted}: {shown}");
        }
        assert!(!shown.contains("separate templates"), "{shown}");
    }
}
