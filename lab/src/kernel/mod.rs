//! Finds the kernel a run asks for, downloading it once if it is one of Debian's.

mod modules;
mod package;

use std::path::{Path, PathBuf};

use crate::{Kernel, LabError};

pub(crate) use modules::Module;

/// A kernel ready to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFiles {
    /// The bzImage.
    pub image: PathBuf,
    /// The directory with `kernel/` and `modules.builtin`.
    pub modules: Option<PathBuf>,
}

impl KernelFiles {
    /// The files of `kernel`; Debian's come from `cache`, or from the package sources by way of it.
    pub fn find(kernel: &Kernel, cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<Self, LabError> {
        match kernel {
            Kernel::Debian6_1 => package::cached_or_downloaded("6.1", cache, progress),
            Kernel::Debian6_12 => package::cached_or_downloaded("6.12", cache, progress),
            Kernel::Image { image, modules } => {
                let image = image.canonicalize().map_err(LabError::io("cannot find the kernel image", image))?;
                Ok(Self { image, modules: modules.clone() })
            }
        }
    }

    /// The modules to load, in this order, so that everything in `wanted` is there. A name that
    /// is built into the kernel needs no module; without a module directory all of them are taken
    /// to be built in.
    pub fn load_order(&self, wanted: &[&str]) -> Result<Vec<Module>, LabError> {
        match &self.modules {
            Some(dir) if !wanted.is_empty() => modules::load_order(dir, wanted),
            _ => Ok(Vec::new()),
        }
    }
}
