//! The records of `bench vm-jobs`: what tells them apart, and how they are found again.

use serde_json::json;

use super::EXPERIMENT;
use super::guests::Kind;
use crate::subjects::vm_host::MemoryPages;
use flashfork_measure::BenchError;
use flashfork_measure::experiment::Results;
use flashfork_measure::record::{Document, Record};
use flashfork_measure::sampling::{Ended, Series};
use flashfork_measure::stats::{Ratio, ratio_of_medians};

/// Which jobs a batch is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// A small C program is compiled.
    Gcc,
    /// A Java program with a heavy start estimates π.
    Java,
    /// Both in turn.
    Mixed,
}

impl Work {
    pub(super) const ALL: [Self; 3] = [Self::Gcc, Self::Java, Self::Mixed];

    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gcc => "gcc",
            Self::Java => "java",
            Self::Mixed => "mixed",
        }
    }

    /// What its jobs are, in turn.
    pub(super) fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Gcc => &[Kind::Gcc],
            Self::Java => &[Kind::Java],
            Self::Mixed => &[Kind::Gcc, Kind::Java],
        }
    }
}

/// How the machine of a job comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// From nothing.
    Boot,
    /// By a claim.
    Clone(MemoryPages),
    /// A clone that has done another job goes back to its template.
    Rollback(MemoryPages),
}

impl Method {
    /// Every method there is, in table order.
    pub(super) const ALL: [Self; 5] = [
        Self::Boot,
        Self::Clone(MemoryPages::Small),
        Self::Clone(MemoryPages::Thp),
        Self::Rollback(MemoryPages::Small),
        Self::Rollback(MemoryPages::Thp),
    ];

    /// As records name it.
    pub(super) fn name(self) -> String {
        match self {
            Self::Boot => "cold-boot".to_owned(),
            Self::Clone(pages) => format!("clone-{}", pages.name()),
            Self::Rollback(pages) => format!("rollback-{}", pages.name()),
        }
    }
}

/// What is found of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// From the request to the result.
    Latency,
    /// Of it: until the machine waited for the job.
    Ready,
    /// Of it: the job.
    Job,
    /// Jobs a second, one machine for each CPU.
    Throughput,
    /// System time of all processes of ours, for each job.
    System,
}

impl Measure {
    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Ready => "ready",
            Self::Job => "job",
            Self::Throughput => "jobs per second",
            Self::System => "system time",
        }
    }

    fn unit(self) -> &'static str {
        if self == Self::Throughput { "1/s" } else { "us" }
    }
}

/// Jobs of one kind by one method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub work: Work,
    pub method: Method,
}

impl Cell {
    /// Keeps the samples of one measure.
    pub(super) fn keep(
        self,
        cpus: usize,
        series: &Series<Measure>,
        ended: Ended,
        results: &mut Results,
    ) -> Result<(), BenchError> {
        let measure = series.measure;
        let chosen = [("measure", json!(measure.name())), ("jobs", json!(self.work.name()))];
        results.keep(&self.method.name(), chosen, [("cpus", json!(cpus))], measure.unit(), series, ended)
    }

    /// The record of one measure.
    pub(super) fn find(self, document: &Document, measure: Measure) -> Option<&Record> {
        let wanted = [("measure", json!(measure.name())), ("jobs", json!(self.work.name()))];
        document.find(EXPERIMENT, &self.method.name(), &wanted)
    }

    /// How many times that of a boot a measure's median is.
    pub(super) fn beside_boot(self, document: &Document, measure: Measure) -> Option<Ratio> {
        let boot = Self { method: Method::Boot, ..self }.find(document, measure)?;
        ratio_of_medians(&self.find(document, measure)?.rounds(), &boot.rounds())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flashfork_measure::host::HostCard;
    use flashfork_measure::stats::Rounds;

    /// Records of jobs that take 10 s by a boot, 1 s by a clone, of which half is the job, and 0.5 s by a rollback.
    pub(in super::super) fn document() -> Document {
        let mut results = Results::new(EXPERIMENT);
        for work in [Work::Gcc, Work::Java] {
            for method in Method::ALL {
                let seconds = match method {
                    Method::Boot => 10.0,
                    Method::Clone(_) => 1.0,
                    Method::Rollback(_) => 0.5,
                };
                for measure in [Measure::Latency, Measure::Ready, Measure::Job, Measure::Throughput, Measure::System] {
                    let value = match measure {
                        Measure::Throughput => 1.0 / seconds,
                        Measure::Ready | Measure::Job => seconds * 0.5e6,
                        Measure::Latency | Measure::System => seconds * 1e6,
                    };
                    let series = Series { measure, warm_up: Vec::new(), rounds: Rounds(vec![vec![value]; 6]) };
                    Cell { work, method }.keep(1, &series, Ended::Rounds, &mut results).unwrap();
                }
            }
        }
        Document::new(HostCard::read().unwrap(), results.records)
    }

    #[test]
    fn each_method_is_compared_with_a_boot_for_the_same_job() {
        let document = document();
        let ratio =
            |work, method, measure| Cell { work, method }.beside_boot(&document, measure).map(|found| found.value);
        assert_eq!(ratio(Work::Java, Method::Clone(MemoryPages::Thp), Measure::Throughput), Some(10.0));
        assert_eq!(ratio(Work::Gcc, Method::Rollback(MemoryPages::Small), Measure::Job), Some(0.05));
        assert_eq!(ratio(Work::Mixed, Method::Clone(MemoryPages::Small), Measure::Job), None);
    }
}
