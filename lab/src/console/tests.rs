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
	assert_eq!(console.warnings.len(), 16, "{:?}", console.warnings);
	assert!(!console.panicked);
}

#[test]
fn panics_and_oom_kills_are_seen() {
	let console = console(
		"[    3.1] Memory cgroup out of memory: Killed process 90 (sh) total-vm:1kB\n\
		 [    3.2] Out of memory: Killed process 91 (sh) total-vm:1kB\n\
		 [    3.3] Kernel panic - not syncing: sysrq triggered crash",
	);
	assert_eq!(console.oom_kills, 2);
	assert!(console.panicked);
	assert_eq!(console.tail_for_error().0.len(), 3, "what came just before is shown, too");
}

#[test]
fn the_end_is_kept_within_bounds() {
	let mut text: String = (0..1000).map(|n| format!("line {n}\n")).collect();
	text.push_str(&"x".repeat(LONGEST * 2));
	let console = console(&text);
	assert_eq!(console.tail.len(), KEPT);
	assert_eq!(console.tail.back().unwrap().len(), LONGEST);
	assert_eq!(console.tail_for_error().0.len(), IN_ERROR);
	assert_eq!(console.tail[KEPT - 3], "line 999");
}
