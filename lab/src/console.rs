//! Reads the guest's console: keeps its end, and picks out what the kernel complains about.

use std::collections::VecDeque;

use crate::error;

/// Lines kept, of the console's end and of warnings each: a panic and its call trace fit.
const KEPT: usize = 128;
/// Lines shown in an error.
const IN_ERROR: usize = 80;
/// Lines shown of what came before a fault.
const BEFORE: usize = 20;
/// A longer line is cut in pieces, so that a guest can't fill the host's memory.
const LONGEST: usize = 1024;

/// The console of one guest.
#[derive(Debug, Default)]
pub(crate) struct Console {
    line: Vec<u8>,
    tail: VecDeque<String>,
    warnings: Vec<String>,
    oom_kills: u32,
    panicked: bool,
}

impl Console {
    /// Takes in what the guest wrote.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                b'\r' => {}
                _ => {
                    self.line.push(*byte);
                    if self.line.len() == LONGEST {
                        self.end_line();
                    }
                }
            }
        }
    }

    /// Takes an unfinished last line as a line; for the end of the guest.
    pub fn finish(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        let message = message(&line);
        self.panicked |= is_panic(message);
        if is_oom_kill(message) {
            self.oom_kills += 1;
        }
        if is_warning(message) && self.warnings.len() < KEPT {
            self.warnings.push(line.clone());
        }
        if self.tail.len() == KEPT {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// Whether the kernel panicked.
    pub fn panicked(&self) -> bool {
        self.panicked
    }

    /// Processes killed for want of memory so far.
    pub fn oom_kills(&self) -> u32 {
        self.oom_kills
    }

    /// The lines in which the kernel reports a fault of its own.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The last lines.
    pub fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }

    /// What an error shows: the first fault of the kernel and what follows, if it is not too long
    /// ago, otherwise the last lines.
    pub fn tail_for_error(&self) -> error::Console {
        let fault = self.tail.iter().position(|line| {
            let message = message(line);
            is_warning(message) || is_panic(message)
        });
        let from = fault.map_or(self.tail.len().saturating_sub(IN_ERROR), |at| at.saturating_sub(BEFORE));
        error::Console(self.tail.iter().skip(from).take(IN_ERROR).cloned().collect())
    }
}

/// The line without its `[    1.234567] ` and the `[ T123]` that some kernels add.
fn message(line: &str) -> &str {
    let mut rest = line;
    while let Some((_, after)) = rest.strip_prefix('[').and_then(|r| r.split_once("] ")) {
        rest = after;
    }
    rest
}

/// What starts a message of `WARN()`, an oops and most checkers: lockdep, RCU, UBSAN, the slab
/// allocator, page poisoning, the object debugger. These count at the start only: boot messages have
/// `WARNING:` inside.
const STARTS: [&str; 7] = ["WARNING:", "UBSAN:", "Oops", "BUG ", "INFO: rcu", "pagealloc:", "ODEBUG:"];

/// Whether the kernel reports a fault of its own. `BUG:` also stands behind other words: KASAN, lockups,
/// `Bad page`, `Bad rss-counter`, `non-zero pgtables_bytes`.
fn is_warning(message: &str) -> bool {
    STARTS.iter().any(|start| message.starts_with(start))
        || message.contains("BUG:")
        || message.contains("kernel BUG at")
        || message.starts_with("INFO: task ") && message.contains("blocked for more than")
        || message.starts_with("INFO: trying to register non-static key")
}

fn is_panic(message: &str) -> bool {
    message.starts_with("Kernel panic")
}

/// mm/oom_kill.c: `Out of memory: Killed process 1 (x)`, `Memory cgroup out of memory: Killed ...`.
fn is_oom_kill(message: &str) -> bool {
    message.contains("ut of memory: Killed process")
        || message.contains("ut of memory (oom_kill_allocating_task): Killed process")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(text: &str) -> Console {
        let mut console = Console::default();
        // In pieces, as a serial line gives them.
        for piece in text.as_bytes().chunks(7) {
            console.feed(piece);
        }
        console.finish();
        console
    }

    #[test]
    fn only_faults_of_the_kernel_are_warnings() {
        let console = console(
            "[    0.21] Speculative Return Stack Overflow: WARNING: See https://kernel.org\r\n\
             [    1.34] RAS: Correctable Errors collector initialized.\r\n\
             [    2.00] WARNING: CPU: 0 PID: 7 at mm/rmap.c:12 f+0x1/0x2\r\n\
             [    2.01][  T12] WARNING: possible recursive locking detected\r\n\
             [    2.02] BUG: Bad rss-counter state mm:0 type:1 val:3\r\n\
             [    2.03] watchdog: BUG: soft lockup\r\n\
             [    2.04] Oops: 0002 [#1] PREEMPT SMP\r\n\
             [    2.05] traps: x[7] general protection fault ip:0\r\n\
             [    2.06] WARNING: possible circular locking dependency detected\r\n\
             [    2.07] WARNING: suspicious RCU usage\r\n\
             [    2.08] WARNING: inconsistent lock state\r\n\
             [    2.09] BUG: non-zero pgtables_bytes on freeing mm: 4096\r\n\
             [    2.10] BUG: Bad page map in process x  pte:1 pmd:2\r\n\
             [    2.11] BUG: KASAN: slab-use-after-free in f+0x1/0x2\r\n\
             [    2.12] kernel BUG at mm/page_table_check.c:88!\r\n\
             [    2.13] pagealloc: memory corruption\r\n\
             [    2.14] BUG kmalloc-32 (Not tainted): Redzone overwritten\r\n\
             [    2.15] ODEBUG: free active (active state 0)\r\n\
             [    2.16] INFO: rcu_preempt detected stalls on CPUs/tasks:\r\n",
        );
        assert_eq!(console.warnings().len(), 16, "{:?}", console.warnings());
        assert!(!console.panicked());
    }

    #[test]
    fn panics_and_oom_kills_are_seen() {
        let console = console(
            "[    3.1] Memory cgroup out of memory: Killed process 90 (sh) total-vm:1kB\n\
             [    3.2] Out of memory: Killed process 91 (sh) total-vm:1kB\n\
             [    3.3] Kernel panic - not syncing: sysrq triggered crash",
        );
        assert_eq!(console.oom_kills(), 2);
        assert!(console.panicked());
        assert_eq!(console.tail_for_error().0.len(), 3, "what came just before is shown, too");
    }

    #[test]
    fn the_end_is_kept_within_bounds() {
        let mut text: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        text.push_str(&"x".repeat(LONGEST * 2));
        let console = console(&text);
        assert_eq!(console.tail().len(), KEPT);
        assert_eq!(console.tail().last().unwrap().len(), LONGEST);
        assert_eq!(console.tail_for_error().0.len(), IN_ERROR);
        assert_eq!(console.tail()[KEPT - 3], "line 999");
    }
}
