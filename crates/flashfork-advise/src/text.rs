//! Advice for people.

use crate::forecast::Engine;
use crate::recommend::Advice;
use flashfork_terminal::size::show;
use flashfork_terminal::table::{counted, render, time};

impl Advice {
    /// The recommendation first, then what it rests on.
    pub fn text(&self) -> String {
        let survey = &self.survey;
        let mut parts = vec![self.recommendation.sentence.clone(), self.table()];
        let dirtied = self.forecast.dirtied;
        let how = if dirtied.measured { "counted" } else { "assumed, count with --watch SECONDS" };
        parts.push(format!(
            "Written between two forks: {} in {} of 2 MB ({how}).",
            counted(dirtied.pages as usize, "page"),
            counted(dirtied.regions as usize, "region")
        ));
        let sealed = match survey.sealed_bytes {
            0 => String::new(),
            bytes => format!(", {} sealed already", show(bytes)),
        };
        parts.push(format!(
            "Process {} ({}): {}, {}, {} resident, {} of page tables; anonymous: {} on 4 KB pages, {} on huge \
             pages{sealed}. Free memory: {}.",
            survey.pid,
            survey.name,
            counted(survey.threads as usize, "thread"),
            counted(survey.vmas as usize, "mapping"),
            show(survey.resident_bytes),
            show(survey.page_table_bytes),
            show(survey.small_bytes),
            show(survey.huge_bytes),
            show(self.headroom),
        ));
        let left: Vec<String> = survey
            .left_out
            .iter()
            .take(4)
            .map(|left| format!("{} ({}: {})", show(left.bytes), left.reason, left.what))
            .collect();
        let refused = survey.refused.as_ref().map_or(String::new(), |what| format!(", were it not {what}"));
        let cure = survey.cure.map_or(String::new(), |cure| format!(" To have it sealed, {cure}."));
        let left = if left.is_empty() { "nothing".to_owned() } else { left.join("; ") };
        parts.push(format!("To be sealed{refused}: {}; left as it is: {left}.{cure}", show(survey.sealable_bytes)));
        parts.join("\n\n")
    }

    fn table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .forecast
            .outlooks
            .iter()
            .map(|outlook| {
                let how = match outlook.engine {
                    Engine::Now => "as it is",
                    Engine::Thp => "with huge pages",
                    Engine::Seal => "sealed",
                    Engine::Odf => "on demand",
                };
                let show = |us: Option<f64>| us.map_or(String::new(), time);
                let why = outlook.unavailable.clone().unwrap_or_default();
                vec![how.to_owned(), why, show(outlook.fork_us), show(outlook.writes_us), show(outlook.total_us())]
            })
            .collect();
        render(&["memory", "not to be had", "fork call", "writes after it", "together"], &rows, 2)
    }
}
