//! The programs: how each is warmed, and the script it runs then.

use clap::ValueEnum;

/// The interpreter that the packages belong to; what is first in PATH may be another, or a script that finds one.
const PYTHON: &str = "/usr/bin/python3";

/// Imports numpy, has it use its threads, and starts eight of its own.
pub(super) const THREADS: &str = "import sys, numpy
from concurrent.futures import ThreadPoolExecutor
numpy.ones((300, 300)) @ numpy.ones((300, 300))
sys.pool = ThreadPoolExecutor(8)
list(sys.pool.map(lambda n: n * n, range(64)))";

/// Java's.
pub(super) const JAVA: &str = include_str!("java.java");

/// A program of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// `/bin/true`
    True,
    /// CPython with nothing imported
    Python,
    /// CPython with numpy and pandas
    Numpy,
    /// Perl with a module
    Perl,
    /// Ruby with a library
    Ruby,
    /// CPython with numpy and threads of its own, all of which clones have
    Threads,
    /// Java with 100 MB and eight threads of its own, all of which clones have
    Java,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::True, Self::Python, Self::Numpy, Self::Perl, Self::Ruby, Self::Threads, Self::Java];

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Python => "python",
            Self::Numpy => "numpy",
            Self::Perl => "perl",
            Self::Ruby => "ruby",
            Self::Threads => "threads",
            Self::Java => "java",
        }
    }

    /// Where it is ready with its threads, if clones have them: for `--ready`.
    pub(super) fn ready_with_threads(self) -> Option<&'static str> {
        match self {
            Self::Threads => Some("auto"),
            Self::Java => Some("line:^ready$"),
            _ => None,
        }
    }

    /// What it is, for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::True => "/bin/true",
            Self::Python => "CPython",
            Self::Numpy => "CPython, numpy, pandas",
            Self::Perl => "Perl, POSIX, Data::Dumper",
            Self::Ruby => "Ruby, json, set",
            Self::Threads => "CPython, numpy, 8 threads",
            Self::Java => "Java, 100 MB, 8 threads",
        }
    }

    /// The command that is warmed.
    pub(super) fn warmed(self) -> &'static [&'static str] {
        match self {
            Self::True => &["/bin/true"],
            Self::Python => &[PYTHON, "-c", "pass"],
            Self::Numpy => &[PYTHON, "-c", "import numpy, pandas"],
            Self::Perl => &["perl", "-MPOSIX", "-MData::Dumper", "-e", "1"],
            Self::Ruby => &["ruby", "-rjson", "-rset", "-e", ""],
            Self::Threads => &[PYTHON, "-c", THREADS],
            Self::Java => &["java", "-XX:+UseSerialGC", "-Xms300m", "-Xmx300m", "Warm", "waits"],
        }
    }

    /// The command that is started anew, to which a script is added, if there is one.
    pub(super) fn anew(self) -> &'static [&'static str] {
        let warmed = self.warmed();
        if self == Self::Java { &warmed[..warmed.len() - 1] } else { &warmed[..1] }
    }

    /// A script that prints one line, [`LINE`](super::command::LINE), after loading what is warmed; started anew and in
    /// a clone alike. None: the program prints nothing.
    pub(super) fn script(self) -> Option<&'static str> {
        Some(match self {
            // Java's is compiled before.
            Self::True | Self::Java => return None,
            Self::Threads => {
                const SCRIPT: &str = "import sys\nif not hasattr(sys, 'pool'): exec(open(__file__ + '.warm').read())\nprint(sys.pool.submit(lambda: 1).result())\n";
                SCRIPT
            }
            Self::Python => "print(1)\n",
            Self::Numpy => "import numpy, pandas\nprint(1)\n",
            Self::Perl => "use POSIX; use Data::Dumper;\nprint \"1\\n\";\n",
            Self::Ruby => "require 'json'; require 'set'\nputs 1\n",
        })
    }

    /// Debian's packages it needs.
    pub(super) fn packages(self) -> &'static str {
        match self {
            Self::True => "coreutils",
            Self::Python => "python3",
            Self::Numpy => "python3-numpy python3-pandas",
            Self::Perl => "perl",
            Self::Ruby => "ruby",
            Self::Threads => "python3-numpy",
            Self::Java => "openjdk-17-jdk-headless",
        }
    }

    /// Whether it prints [`LINE`](super::command::LINE).
    pub(super) fn prints(self) -> bool {
        self != Self::True
    }
}
