//! The records of `bench vm-fuzz --qemu`, and how they are found again.

use serde_json::json;

use super::super::EXPERIMENT;
use crate::subjects::Method;
use flashfork_measure::record::{Document, Record};

/// What is found of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// From AFL's request until it knows how the child ended.
    Execution,
    /// The fork call in QEMU.
    Fork,
}

impl Measure {
    /// As records name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Fork => "fork",
        }
    }

    /// Its record.
    pub(super) fn find(self, document: &Document, method: Method) -> Option<&Record> {
        let wanted = [("machine", json!("qemu")), ("measure", json!(self.name()))];
        document.find(EXPERIMENT, method.name(), &wanted)
    }
}
