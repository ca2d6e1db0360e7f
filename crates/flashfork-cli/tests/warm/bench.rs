//! `flashfork bench warm`: what it records is complete, and nothing of it runs on. No times are judged.

use crate::place::{Place, stderr, until};

/// Processes that were started with this text in their environment.
fn started_with(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|e| std::fs::read(e.unwrap().path().join("environ")).ok());
    all.filter(|environ| environ.windows(text.len()).any(|part| part == text.as_bytes())).count()
}

#[test]
fn programs_are_measured_and_no_template_stays() {
    let place = Place::new();
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let records = place.path().join("records.json");
    let records = records.to_str().unwrap();
    let mut bench =
        place.flashfork(&["bench", "warm", "--quick", "--programs", "true,perl", "--json", "--records", records]);
    let output = bench.env("TMPDIR", &work).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (program, method, measure) in [
        ("true", "cold", "whole"),
        ("true", "clone", "whole"),
        ("true", "clone", "clone_faults"),
        ("perl", "clone", "line"),
        ("perl", "clone-busy", "whole"),
    ] {
        let found = document["records"].as_array().unwrap().iter().any(|record| {
            record["method"] == method
                && record["chosen"]["program"] == program
                && record["chosen"]["measure"] == measure
                && record["p50"].as_f64().unwrap() > 0.0
        });
        assert!(found, "{program} {method} {measure}: {document}");
    }
    let text = work.to_str().unwrap();
    until("all templates have ended", || started_with(&format!("XDG_RUNTIME_DIR={text}")) == 0);
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
}
