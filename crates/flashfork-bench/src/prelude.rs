//! The words that all experiments are written in.

pub use std::{
	path::{Path, PathBuf},
	process::{Command, Stdio},
	time::{Duration, Instant},
};

pub use flashfork_measure::{
	BenchError, Deadline, Document, Effort, Experiment, OrCant, Places, Progress, Ratio, Record, Registered, Result,
	Rounds, Row, Run, Subject, Summary, Target, Unit, Visit, WorkDir, Worker, by_measure, median, median_time, met,
	numbers, page, pin, promises, quantile_of, ratio_of, ratio_of_medians, shown, spread, spread_of_rounds, table,
	titled, unable,
};
pub use flashfork_terminal::{
	size::{Size, show},
	table::{three_figures, time, time_range},
};
pub use serde::{Deserialize, Serialize};
pub use serde_json::{Value, json};
pub use strum::VariantArray;

pub use crate::{
	once::{All, ascending, asked_of, count, each_once, size_that},
	subjects::{
		Facts, Method, PAGE, Region, WORDS_PER_PAGE,
		clock::{micros, monotonic, us},
		memory, word,
	},
};
