//! Advice for people.

use crate::{
	forecast::{Engine, Forecast, Outlook},
	recommend::Advice,
};
use flashfork_terminal::{
	size::show,
	table::{counted, render, time},
};

impl Advice {
	/// The recommendation first, then what it rests on.
	pub fn text(&self) -> String {
		let survey = &self.survey;
		let mut parts = vec![self.recommendation.sentence.clone(), self.forecast.table()];
		parts.extend(self.forecast.not_to_be_had());
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
}

impl Forecast {
	fn table(&self) -> String {
		let show = |us: Option<f64>| us.map_or(String::new(), time);
		let rows: Vec<Vec<String>> = self
			.outlooks
			.iter()
			.filter(|outlook| outlook.unavailable.is_none())
			.map(|outlook| {
				let [call, writes, total] = [outlook.fork_us, outlook.writes_us, outlook.total_us()].map(show);
				vec![words(outlook.engine).to_owned(), call, writes, total]
			})
			.collect();
		render(&["memory", "fork call", "writes after it", "together"], &rows, 1)
	}

	/// The others, and why: below the table, because a reason may be long.
	fn not_to_be_had(&self) -> Option<String> {
		let why = |outlook: &Outlook| Some(format!("{} ({})", words(outlook.engine), outlook.unavailable.as_ref()?));
		let reasons: Vec<String> = self.outlooks.iter().filter_map(why).collect();
		(!reasons.is_empty()).then(|| format!("Not to be had: {}.", reasons.join("; ")))
	}
}

fn words(engine: Engine) -> &'static str {
	match engine {
		Engine::Now => "as it is",
		Engine::Thp => "with huge pages",
		Engine::Seal => "sealed",
		Engine::Odf => "on demand",
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::survey::Dirtied;

	#[test]
	fn a_long_reason_makes_no_wide_table() {
		let reason = "a process with other threads, or whose memory another process uses too (CLONE_VM) is not sealed";
		let outlook = |engine, unavailable: Option<&str>| Outlook {
			engine,
			unavailable: unavailable.map(str::to_owned),
			fork_us: unavailable.is_none().then_some(20_000.0),
			writes_us: unavailable.is_none().then_some(1.0),
		};
		let outlooks = vec![outlook(Engine::Now, None), outlook(Engine::Seal, Some(reason))];
		let dirtied = Dirtied { pages: 1, regions: 1, measured: false };
		let forecast = Forecast { outlooks, dirtied, seal_us: None };
		let table = forecast.table();
		assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
		assert!(table.contains("as it is") && !table.contains("sealed"), "{table}");
		assert_eq!(forecast.not_to_be_had().unwrap(), format!("Not to be had: sealed ({reason})."));
	}
}
