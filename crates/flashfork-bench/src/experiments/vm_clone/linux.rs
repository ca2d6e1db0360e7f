//! Linux guests: Debian's cloud kernel with the agent, from the request to the agent's first answer.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use flashfork_image::guest::{CMDLINE, Guest, default_guest};
use flashfork_proto::agent::{self, Client};
use flashfork_proto::shape::Shape;
use flashfork_proto::shell::{Boot, BootGuest, FromShell, ToShell};
use flashfork_vmm::machine::Blank;
use flashfork_vmm::pool::Shell;

use super::GuestKind;
use super::found::{Cell, FIRST_EXIT, FIRST_REPLY, Method, READY, Sample, visit};
use super::plan::Plan;
use super::tiny::{steps, us};
use crate::subjects::vm_host::{CID, Host, MemoryPages, PATIENCE, Template, expect, shape, vm};
use flashfork_measure::experiment::{Places, Results};
use flashfork_measure::sampling::{Effort, sample};
use flashfork_measure::{BenchError, Deadline, Progress};

/// Clones a round and size; a boot takes so much longer that one is enough.
const BATCH: usize = 5;
/// How long one call of a guest that boots may take. It waits for the guest's driver, which refuses it until the agent
/// listens.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a guest that boots is called until its agent answers; under this the first reply is rounded up.
const CALL: Duration = Duration::from_millis(5);

/// A guest at its size.
struct Subject {
    shape: Shape,
    /// The same on pages of several kinds.
    templates: Vec<Template>,
    waiting: VecDeque<Shell>,
    claims: u64,
}

pub(super) fn measure(
    host: &Host,
    here: &dyn Places,
    plan: &Plan,
    deadline: Deadline,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let agent = here.agent()?;
    if !agent.is_file() {
        let agent = agent.display();
        return Err(BenchError::Unable(format!(
            "Linux guests need the guest agent at {agent}: build it with scripts/build-agent"
        )));
    }
    progress.begin("the guests' kernel and initramfs", 1);
    let guest = default_guest(&here.cache("lab")?, &agent, &mut |line| progress.note(line)).map_err(vm)?;
    progress.step();
    progress.begin("booting Linux guests for templates", plan.linux_sizes.len() as u64);
    let mut subjects = Vec::new();
    for &size in &plan.linux_sizes {
        if progress.interrupted() {
            return Ok(());
        }
        subjects.push(Subject::new(host, &guest, shape(size, MemoryPages::Small.of_shape()))?);
        progress.step();
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
    progress.begin("interleaved rounds of clones and boots of Linux", effort.steps());
    let (sampled, done) = sample(cells.len(), &effort, cells.len() as u64, progress, |cell, _| {
        let (subject, Cell { method, .. }) = cells[cell];
        let subject = &mut subjects[subject];
        let samples = match method {
            Method::Clone(pages) => (0..BATCH).map(|_| subject.clone(host, pages, false)).collect::<Result<_, _>>()?,
            Method::Primed(pages) => (0..BATCH).map(|_| subject.clone(host, pages, true)).collect::<Result<_, _>>()?,
            Method::ColdBoot(_) => vec![subject.cold_boot(host, &guest)?],
        };
        Ok(visit(&samples))
    });
    for ((_, cell), series) in cells.iter().zip(&sampled.cells) {
        series.iter().try_for_each(|series| cell.keep(series, sampled.ended, results))?;
    }
    done
}

impl Subject {
    fn new(host: &Host, guest: &Guest, shape: Shape) -> Result<Self, BenchError> {
        let shell = host.shell(shape)?;
        boot(&shell, shape, guest, " flashfork.ready=fork")?;
        // The monitor puts on 2 MB pages what it can.
        let made = Template::freeze_as_it_is(&shell, shape, MemoryPages::Thp)?;
        let mut templates = vec![made.on(MemoryPages::Small)?];
        templates.extend(made.is_huge().then_some(made));
        Ok(Self { shape, templates, waiting: VecDeque::from([host.shell(shape)?]), claims: 0 })
    }

    fn clone(&mut self, host: &Host, pages: MemoryPages, primed: bool) -> Result<Sample, BenchError> {
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
            return Err(BenchError::Unable(format!("a clone's kernel is {uptime:?} old: it was booted")));
        }
        let mut sample = vec![(FIRST_EXIT, us(claimed.total)), (READY, us(ready)), (FIRST_REPLY, us(reply))];
        sample.extend(steps(&claimed));
        Ok(sample)
    }

    /// From nothing to the agent's first answer, shell and jail included.
    fn cold_boot(&self, host: &Host, guest: &Guest) -> Result<Sample, BenchError> {
        let start = Instant::now();
        let shell = host.shell(self.shape)?;
        let created = start.elapsed();
        boot(&shell, self.shape, guest, "")?;
        let loaded = start.elapsed();
        let uptime = loop {
            match call(&shell, CONNECT) {
                Ok(uptime) => break uptime,
                Err(why) if start.elapsed() > PATIENCE => return Err(why),
                Err(_) => std::thread::sleep(CALL),
            }
        };
        let reply = start.elapsed();
        if uptime > reply {
            return Err(BenchError::Unable(format!("the kernel of a guest that booted is {uptime:?} old")));
        }
        Ok(vec![(FIRST_REPLY, us(reply)), ("create", us(created)), ("load", us(loaded - created))])
    }
}

/// Starts Linux in a shell.
fn boot(shell: &Shell, shape: Shape, guest: &Guest, append: &str) -> Result<(), BenchError> {
    let open = |path: &std::path::Path| {
        File::open(path).map_err(|error| BenchError::system(format!("open {}", path.display()), error))
    };
    let (kernel, initramfs) = (open(&guest.kernel)?, open(&guest.initramfs)?);
    let linux = BootGuest::Linux { cmdline: format!("{CMDLINE}{append}"), initramfs: true };
    let request = ToShell::Boot(Box::new(Boot { cid: CID, guest: linux, disk: None }));
    let blank = Blank::new(&shape, None).map_err(vm)?;
    shell.send(&request, &[blank.ram.as_fd(), kernel.as_fd(), initramfs.as_fd()]).map_err(vm)?;
    expect(shell, |message| matches!(message, FromShell::Done).then_some(()), "start")
}

fn until_alive(shell: &Shell) -> Result<(), BenchError> {
    expect(shell, |message| matches!(message, FromShell::Alive(_)).then_some(()), "become a clone of its own")
}

/// Calls the agent, and gives its kernel's age once it has answered.
fn call(shell: &Shell, patience: Duration) -> Result<Duration, BenchError> {
    let failed = |error: std::io::Error| BenchError::system("talk to a guest's agent", error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    shell.send(&ToShell::Connect { port: agent::PORT }, &[theirs.as_fd()]).map_err(vm)?;
    drop(theirs);
    ours.set_read_timeout(Some(patience)).map_err(failed)?;
    let reader = ours.try_clone().map_err(failed)?;
    let client = Client::connect(reader, ours).map_err(vm)?;
    Ok(Duration::from_nanos(client.hello().monotonic_ns))
}
