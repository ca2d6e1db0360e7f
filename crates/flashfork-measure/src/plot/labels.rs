//! Labels beside line ends, moved apart where the lines end close to each other.

/// Heights for labels that want to be at `wanted` (pixels from the top), at least `gap` apart and in the same order.
/// Labels that are too close share the way between them.
pub fn apart(wanted: &[f64], gap: f64) -> Vec<f64> {
	let mut order: Vec<usize> = (0..wanted.len()).collect();
	order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
	// Runs of labels that touch, each centred on the mean of what its labels want.
	let mut runs: Vec<Run> = Vec::new();
	for &label in &order {
		let mut run = Run { labels: vec![label], centre: wanted[label] };
		while let Some(above) = runs.pop_if(|above| above.end(gap) > run.begin(gap)) {
			let (a, b) = (above.labels.len() as f64, run.labels.len() as f64);
			let centre = (above.centre * a + run.centre * b) / (a + b);
			run = Run { labels: [above.labels, run.labels].concat(), centre };
		}
		runs.push(run);
	}
	let mut placed = vec![0.0; wanted.len()];
	for run in &runs {
		for (index, &label) in run.labels.iter().enumerate() {
			placed[label] = run.begin(gap) + gap * (index as f64 + 0.5);
		}
	}
	placed
}

struct Run {
	labels: Vec<usize>,
	centre: f64,
}

impl Run {
	fn begin(&self, gap: f64) -> f64 {
		self.centre - gap * self.labels.len() as f64 / 2.0
	}

	fn end(&self, gap: f64) -> f64 {
		self.centre + gap * self.labels.len() as f64 / 2.0
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn labels_with_room_stay() {
		assert_eq!(apart(&[100.0, 10.0, 50.0], 30.0), [100.0, 10.0, 50.0]);
		assert!(apart(&[], 30.0).is_empty());
	}

	#[test]
	fn close_labels_share_the_way_and_keep_their_order() {
		assert_eq!(apart(&[52.0, 50.0], 30.0), [66.0, 36.0]);
		// Moving two apart must not push one into a third.
		assert_eq!(apart(&[50.0, 52.0, 90.0], 30.0), [34.0, 64.0, 94.0]);
	}
}
