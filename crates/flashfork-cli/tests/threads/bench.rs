//! `flashfork bench threads`: what it records is complete, and nothing of it runs on. No times are judged.

use crate::place::{Place, stderr, until};

/// Processes that were started with this text in their environment.
fn started_with(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|e| std::fs::read(e.unwrap().path().join("environ")).ok());
    all.filter(|environ| environ.windows(text.len()).any(|part| part == text.as_bytes())).count()
}

#[test]
fn programs_with_threads_are_measured_and_no_template_stays() {
    let place = Place::new();
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let records = place.path().join("records.json");
    let records = records.to_str().unwrap();
    let options = ["--heaps", "50M", "--threads", "1,8", "--alive", "2", "--quick", "--json", "--records", records];
    let mut bench = place.flashfork(&[&["bench", "threads"], &options[..]].concat());
    let output = bench.env("TMPDIR", &work).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["missing"].as_array().is_none_or(Vec::is_empty), "{document}");
    for (program, method, measure) in [
        ("java-line", "anew", "whole"),
        ("java-classes", "best", "answer"),
        ("java-50m", "server", "whole"),
        ("java-50m", "clone", "running"),
        ("java-50m", "clone-unsealed", "running"),
        ("java-50m", "clone", "memory"),
        ("node", "anew", "answer"),
        ("node", "best", "answer"),
        ("node", "clone", "answer"),
        ("python", "best", "whole"),
        ("python", "clone", "whole"),
        ("threads-8", "clone", "running"),
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
