//! Linux guests: Debian's cloud kernel with the agent, from the request to the agent's first answer.

use std::collections::VecDeque;

use flashfork_image::guest::Guest;
use flashfork_proto::shape::Shape;
use flashfork_vmm::pool::Shell;

use super::{
	GuestKind,
	found::{Cell, FIRST_EXIT, FIRST_REPLY, Method, READY, Sample},
	plan::Plan,
	tiny::steps,
};
use crate::{
	prelude::*,
	subjects::vm_host::{
		Host, MemoryPages, PATIENCE, Template,
		linux::{CALL, boot, connect, guest, until_alive, until_answers},
		shape, vm,
	},
};

/// Clones a round and size; a boot takes so much longer that one is enough.
const BATCH: usize = 5;
/// A guest at its size.
struct Subject {
	shape: Shape,
	/// The same on pages of several kinds.
	templates: Vec<Template>,
	waiting: VecDeque<Shell>,
	claims: u64,
}

pub fn measure(host: &Host, plan: &Plan, deadline: Deadline, run: &mut Run) -> Result {
	let guest = guest(run)?;
	run.begin("booting Linux guests for templates", plan.linux_sizes.len() as u64);
	let mut subjects = Vec::new();
	for &size in &plan.linux_sizes {
		run.go_on()?;
		subjects.push(Subject::new(host, &guest, shape(size, MemoryPages::Small.of_shape()))?);
		run.step();
	}
	let mut cells = Vec::new();
	for (index, subject) in subjects.iter().enumerate() {
		let cell = |method, huge_fraction| {
			(index, Cell { guest: GuestKind::Linux, method, size: subject.shape.memory_bytes(), huge_fraction })
		};
		let claims =
			|template: &Template| Method::claims(template.pages).map(|method| (method, template.huge_fraction));
		let clones = subject.templates.iter().flat_map(claims);
		let all = clones.chain([(Method::ColdBoot(MemoryPages::Small), 0.0)]);
		cells.extend(all.map(|(method, huge)| cell(method, huge)));
	}
	let effort = Effort::rounds(plan.linux_rounds).until(deadline);
	let stage = "interleaved rounds of clones and boots of Linux";
	let taken = run.sample(stage, effort, cells.len(), cells.len() as u64, |cell, _| {
		let (subject, Cell { method, .. }) = cells[cell];
		let subject = &mut subjects[subject];
		let samples: Vec<Sample> = match method {
			Method::Clone(pages) => (0..BATCH).map(|_| subject.clone(host, pages, false)).collect::<Result<_>>()?,
			Method::Primed(pages) => (0..BATCH).map(|_| subject.clone(host, pages, true)).collect::<Result<_>>()?,
			Method::ColdBoot(_) => vec![subject.cold_boot(host, &guest)?],
		};
		Ok(by_measure(samples.into_iter().flatten()))
	});
	taken.keep(run, |cell, measure| cells[cell].1.row(measure))
}

impl Subject {
	fn new(host: &Host, guest: &Guest, shape: Shape) -> Result<Self> {
		let shell = host.shell(shape)?;
		boot(&shell, shape, guest, " flashfork.ready=fork", None)?;
		// The monitor puts on 2 MB pages what it can.
		let made = Template::freeze_as_it_is(&shell, shape, MemoryPages::Thp, None)?;
		let mut templates = vec![made.on(MemoryPages::Small)?];
		templates.extend(made.is_huge().then_some(made));
		let mut claims = 0;
		for template in &mut templates {
			let canary = host.shell(shape)?;
			claims += 1;
			template.claim(&canary, claims)?;
			until_alive(&canary)?;
			call(&canary, PATIENCE)?;
			template.learn(&canary)?;
		}
		Ok(Self { shape, templates, waiting: VecDeque::from([host.shell(shape)?]), claims })
	}

	fn clone(&mut self, host: &Host, pages: MemoryPages, primed: bool) -> Result<Sample> {
		self.waiting.push_back(host.shell(self.shape)?);
		let mut shell = self.waiting.pop_front().ok_or_else(|| vm("no shell waits"))?;
		let template = self.templates.iter().find(|own| own.pages == pages).ok_or_else(|| vm("no template"))?;
		self.claims += 1;
		if primed {
			template.prime(&mut shell)?;
		}
		std::thread::sleep(CALL);
		let start = Instant::now();
		let claimed = template.claim(&shell, self.claims)?;
		until_alive(&shell)?;
		let ready = start.elapsed();
		let uptime = call(&shell, PATIENCE).map_err(|why| vm(format!("a clone whose agent doesn't answer: {why}")))?;
		let reply = start.elapsed();
		if uptime <= reply {
			return Err(unable!("a clone's kernel is {uptime:?} old: it was booted"));
		}
		let mut sample = vec![(FIRST_EXIT, us(claimed.total)), (READY, us(ready)), (FIRST_REPLY, us(reply))];
		sample.extend(steps(&claimed));
		Ok(sample)
	}

	/// From nothing to the agent's first answer, shell and jail included.
	fn cold_boot(&self, host: &Host, guest: &Guest) -> Result<Sample> {
		let start = Instant::now();
		let shell = host.shell(self.shape)?;
		let created = start.elapsed();
		boot(&shell, self.shape, guest, "", None)?;
		let loaded = start.elapsed();
		let uptime = Duration::from_nanos(until_answers(&shell)?.hello().monotonic_ns);
		let reply = start.elapsed();
		if uptime > reply {
			return Err(unable!("the kernel of a guest that booted is {uptime:?} old"));
		}
		Ok(vec![(FIRST_REPLY, us(reply)), ("create", us(created)), ("load", us(loaded - created))])
	}
}

/// Calls the agent, and gives its kernel's age once it has answered.
fn call(shell: &Shell, patience: Duration) -> Result<Duration> {
	Ok(Duration::from_nanos(connect(shell, patience)?.hello().monotonic_ns))
}
