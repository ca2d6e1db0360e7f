//! Templates of processes, and clones of them, from any program: what `flashfork warm`, `clone`, `ls` and `rm` do,
//! without the command.
//!
//! A template is a process that was warmed and waits; its name is a socket in a directory of the user's own, so that
//! any process of this user finds it. A clone of it runs what it is given in the caller's directory and environment and
//! on the caller's descriptors: docs/WARM.md says what it has of whom.
//!
//! ```no_run
//! use flashfork_templates::{Directory, Template};
//! let runtime = std::env::var_os("XDG_RUNTIME_DIR");
//! let names = Directory::open(Directory::place(runtime.as_ref().map(AsRef::as_ref)))?;
//! let shim = "/usr/local/lib/flashfork/libflashfork_preload.so";
//! let warm = Template::warm(&names, "py".parse()?, "python3", shim).args(["-c", "import numpy"]);
//! warm.envs(std::env::vars_os()).start()?.wait()?;
//! let template = Template::find(&names, "py".parse()?)?;
//! let clone = template.run().args(["-c", "print(numpy.pi)"]).envs(std::env::vars_os()).start()?;
//! println!("clone {} has ended: {}", clone.pid(), clone.wait()?);
//! template.remove()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The library never prints, never exits and reads no environment variable: what of the environment counts is handed
//! in. Its functions may be called from several threads. A template that was warmed is a child of this process, and
//! outlives it; when it has ended it is waited for at the next warm-up or removal.

mod children;
mod clone;
mod directory;
mod error;
mod java;
mod link;
mod listen;
mod listener;
mod name;
mod own;
mod program;
mod recipe;
mod renew;
mod run;
mod spawn;
mod start;
mod template;
mod warm;
mod warming;

pub use clone::{Asked, Clone, News};
pub use directory::Directory;
pub use error::Error;
pub use flashfork_warm::{Facts, ReadyAt, Step, Why};
pub use listen::Listen;
pub use name::{Name, NameError};
pub use program::{find, is_interpreter};
pub use renew::{Renewal, Stale};
pub use run::{Request, Run};
pub use spawn::preloading;
pub use template::{Listed, Removed, State, Template, why_unsealed};
pub use warm::{Checked, Moment, Ready, Warm};
pub use warming::Warming;
