//! Templates are children of the process that has warmed them, which must be told of their ends (wait(2)) or they stay
//! as zombies.

use crate::link::readable;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::{
	os::fd::AsFd,
	process::Child,
	sync::{Mutex, PoisonError},
	time::Duration,
};

/// How long a template that ends is waited for.
const TO_END: Duration = Duration::from_secs(1);

static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Sees to a template's end from now on.
pub fn keep(template: Child) {
	let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
	children.push(template);
	collect(&mut children);
}

/// A template ends: waits for that if it is a child of this process, and not for ever, for a debugger may hold it.
pub fn ends(template: Option<i32>) {
	let pid = |child: &Child| i32::try_from(child.id()).ok();
	let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
	if children.iter().any(|child| pid(child) == template)
		&& let Some(process) = template.and_then(Pid::from_raw)
		&& let Ok(process) = pidfd_open(process, PidfdFlags::empty())
	{
		// What it fails with is a signal: then the next that is warmed or removed makes up for it.
		let _ = readable(&[process.as_fd()], Some(TO_END));
	}
	collect(&mut children);
}

/// Of those that have ended, or that somebody else has waited for, nothing is left.
fn collect(children: &mut Vec<Child>) {
	children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}
