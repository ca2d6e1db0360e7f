//! `data.csv`: one row a cell (RFC 4180), its chosen parameters in columns of their own.

use serde_json::Value;

use super::CHOSEN;
use crate::record::{Document, Record};

/// All cells.
pub(super) fn text(document: &Document) -> String {
    let mut lines = vec![format!("experiment,method,{},unit,n,min,p50,p90,p99,max", CHOSEN.join(","))];
    lines.extend(document.records.iter().map(row));
    lines.join("\r\n") + "\r\n"
}

fn row(record: &Record) -> String {
    let params = CHOSEN.iter().map(|name| match record.params.get(*name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    });
    let names = [record.experiment.clone(), record.method.clone()];
    let figures = [record.min, record.p50, record.p90, record.p99, record.max].map(|figure| figure.to_string());
    let fields = names.into_iter().chain(params).chain([record.unit.clone(), record.n.to_string()]).chain(figures);
    fields.map(quoted).collect::<Vec<_>>().join(",")
}

fn quoted(field: String) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostCard;
    use crate::record::Params;
    use serde_json::json;

    #[test]
    fn each_cell_is_a_row_of_equal_length() {
        let params =
            [("measure", json!("call")), ("size", json!(1 << 20)), ("parent", json!("read all, wrote \"some\""))];
        let params: Params = params.map(|(name, value)| (name.to_owned(), value)).into();
        let record = Record::new("fork", "seal", params, "us", vec![1.0, 2.5]).unwrap();
        let text = text(&Document::new(HostCard::read().unwrap(), vec![record]));
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("fork,seal,call,1048576,,\"read all, wrote \"\"some\"\"\","), "{}", lines[1]);
        assert!(lines[1].ends_with(",us,2,1,1.75,2.35,2.485,2.5"), "{}", lines[1]);
        assert_eq!(lines[1].matches(',').count(), lines[0].matches(',').count() + 1, "one comma is quoted");
    }
}
