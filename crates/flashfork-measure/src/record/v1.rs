//! Records of schema `flashfork.bench/1`, which kept what was chosen and what was observed in one map, `params`.

use serde_json::{Map, Value};

/// The schema.
pub(super) const SCHEMA: &str = "flashfork.bench/1";

/// The names of what was observed, in any experiment.
const OBSERVED: [&str; 26] = [
    "affinity",
    "afl",
    "changed",
    "cpu",
    "cpus",
    "ended",
    "executions",
    "facts",
    "heap_huge_fraction",
    "in_use",
    "mapped_huge_fraction",
    "page_table_bytes",
    "resident_bytes",
    "samples_per_round",
    "seal_seconds",
    "sealed_bytes",
    "sealed_huge_fraction",
    "seconds",
    "shim",
    "startup_s",
    "t_s",
    "template_huge_fraction",
    "uncounted_clones_per_round",
    "vmas",
    "warm_up",
    "written_pages",
];
/// What a process was measured beside: chosen for the empty one beside those of a size, which nothing else tells from
/// the empty one beside others.
const BESIDE: [&str; 2] = ["beside_methods", "beside_size"];

/// Makes a document of that schema one of the schema of today, as far as it is one; reading it then says what is wrong.
pub(super) fn renew(document: &mut Value) {
    document["schema"] = super::SCHEMA.into();
    let records = document.get_mut("records").and_then(Value::as_array_mut);
    for record in records.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(Value::Object(params)) = record.remove("params") {
            let empty = params.get("beside_size") != params.get("size");
            let is_observed = |name: &str| OBSERVED.contains(&name) || (BESIDE.contains(&name) && !empty);
            // What didn't apply was null.
            let given = params.into_iter().filter(|(_, value)| !value.is_null());
            let (observed, chosen): (Map<_, _>, Map<_, _>) = given.partition(|(name, _)| is_observed(name));
            record.extend([("chosen".to_owned(), chosen.into()), ("observed".to_owned(), observed.into())]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn renewed(params: Value) -> Value {
        let mut document = json!({ "schema": SCHEMA, "records": [{ "method": "fork-4k", "params": params }] });
        renew(&mut document);
        assert_eq!(document["schema"], crate::record::SCHEMA);
        document["records"][0].clone()
    }

    #[test]
    fn what_was_chosen_and_what_was_observed_are_parted() {
        let record = renewed(json!({ "size": 4096, "program": null, "vmas": 37, "warm_up": [1.5] }));
        let parted = json!({
            "method": "fork-4k", "chosen": { "size": 4096 }, "observed": { "vmas": 37, "warm_up": [1.5] }
        });
        assert_eq!(record, parted);
    }

    #[test]
    fn an_empty_process_is_told_by_what_it_was_measured_beside() {
        let beside = |size: u64| json!({ "size": size, "beside_size": 4096, "beside_methods": ["seal"] });
        assert_eq!(renewed(beside(0))["chosen"], beside(0));
        assert_eq!(renewed(beside(4096))["chosen"], json!({ "size": 4096 }));
    }
}
