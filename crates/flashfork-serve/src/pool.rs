//! Functions with their templates, and calls of them, each in a clone of its own.

use crate::{
	bodies::MOST,
	connections::Source,
	error::{ApiError, Result},
	groups::{Group, Groups},
	instance::{Body, Instance, TIMED_OUT},
	lease::Lease,
	locked, log,
	machine::{self, Machines},
	metrics::{End, Metrics},
	parked::Parked,
	process::Running,
	programs::Programs,
	runtime::{Answer, Call},
	store::Config,
	usage,
	warden::{self, NAME, Order, Told},
};
use axum::{body::Bytes, http::HeaderValue};
use flashfork_templates::{Clone as Process, Directory, Error as TemplateError, Template};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::{
	fs::{Mode, OFlags},
	process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
	collections::{BTreeMap, VecDeque},
	os::fd::{AsFd, AsRawFd, OwnedFd},
	path::PathBuf,
	process::Stdio,
	sync::{
		Arc, Mutex,
		atomic::{AtomicBool, Ordering::Relaxed},
	},
	time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{
	io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
	sync::{Mutex as AsyncMutex, Notify, OwnedSemaphorePermit, Semaphore},
	time::timeout,
};
use tracing::{Instrument, debug_span, error, info};

/// How long a function may take to be warmed, and wait for its turn before.
pub const TO_WARM: Duration = Duration::from_secs(120);
/// How long other nodes are to be preferred after it could not be.
const LATELY: Duration = Duration::from_secs(60);
/// Most bytes of what is kept of a function's log, and of what a caller gets of its call's.
const LOG: usize = 256 << 10;
pub const TAIL: usize = 4 << 10;
/// Most processes of a call.
const MOST_PROCESSES: u64 = 256;
/// Most namespaces of a kind of a function, beside four for each call.
const NAMESPACES: usize = 64;
/// Most descriptors of each, as with AWS. The server has more: what processes of its user have in flight (`unix(7)`)
/// counts for all of them together, against the limit of who sends more.
const MOST_DESCRIPTORS: u64 = 1024;

/// What all functions share.
pub struct Pool {
	pub state: PathBuf,
	pub programs: Programs,
	pub shim: PathBuf,
	pub machines: Arc<Machines>,
	/// Where the server has one of its own.
	pub groups: Option<Arc<Groups>>,
	/// Calls that may run at a time.
	pub slots: Arc<Semaphore>,
	/// How many there may be.
	pub concurrency: usize,
	/// Places for fresh clones that wait for a call, and for used ones that wait for another.
	pub fresh: Arc<Semaphore>,
	pub used: Arc<Semaphore>,
	/// Functions that may be warmed at a time.
	pub warmed: Arc<Semaphore>,
	/// Callers that may wait for a call's end, and how many there may be.
	pub queue: Semaphore,
	pub most_wait: usize,
	pub metrics: Metrics,
	/// That a function has become warm or cold.
	pub changed: Notify,
}

/// All functions, by their full names.
pub type Functions = Arc<Mutex<BTreeMap<String, Arc<Function>>>>;

/// A function that can be called.
pub struct Function {
	pub config: Config,
	_code: Lease,
	template: AsyncMutex<Option<Arc<Warm>>>,
	parked: Parked,
	is_warm: AtomicBool,
	/// Why it could not be warmed at last, and when that was.
	failure: Mutex<Option<(Instant, ApiError)>>,
	log: Arc<Mutex<VecDeque<u8>>>,
}

/// A template.
pub enum Warm {
	Process(Arc<Warmed>),
	Machine(Arc<machine::Template>),
}

/// A template of a process, while its warden lives.
pub struct Warmed {
	/// Where it alone has its name.
	names: Directory,
	data: u64,
	/// Whether it has its threads, and so a keeper.
	threads: bool,
	/// The root that it sees.
	seen: OwnedFd,
	warden: tokio::process::Child,
	/// Of that process.
	end: Arc<OwnedFd>,
	_line: tokio::process::ChildStdin,
	/// How many bytes all of it has, and the control group in which that is.
	group: Option<(u64, Group)>,
}

/// What a call has come to.
pub struct Outcome {
	pub payload: Bytes,
	/// Whether the function has failed.
	pub failed: bool,
	/// The end of its log.
	pub tail: Vec<u8>,
	/// Its slot, if it was this node's.
	pub slot: Option<Arc<OwnedSemaphorePermit>>,
}

/// A random number, as a UUID is written.
pub fn uuid() -> String {
	let mut bytes = [0; 16];
	SystemRandom::new().fill(&mut bytes).expect("the kernel has random numbers");
	// Version 4, of RFC 9562.
	bytes[6] = bytes[6] & 0x0f | 0x40;
	bytes[8] = bytes[8] & 0x3f | 0x80;
	let text = hex::encode(bytes);
	[&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

impl Function {
	/// `code`: of its files.
	pub fn new(config: Config, code: Lease) -> Function {
		let (template, parked) = (AsyncMutex::default(), Parked::default());
		let (is_warm, failure) = (AtomicBool::default(), Mutex::default());
		Function { config, _code: code, template, parked, is_warm, failure, log: Arc::default() }
	}

	pub fn log(&self) -> Vec<u8> {
		locked(&self.log).iter().copied().collect()
	}

	/// The template, made first if there is none.
	pub async fn warm(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<Arc<Warm>> {
		let asked = Instant::now();
		if let Some(warm) = &*self.template.lock().await {
			return Ok(warm.clone());
		}
		// To its end, also when who waits for it goes.
		let (function, pool) = (self.clone(), pool.clone());
		let warming = async move { function.begin(&pool, asked).await };
		tokio::spawn(warming.in_current_span()).await.map_err(ApiError::service)?
	}

	async fn begin(self: &Arc<Self>, pool: &Arc<Pool>, asked: Instant) -> Result<Arc<Warm>> {
		let mut place = self.template.lock().await;
		if let Some(warm) = &*place {
			return Ok(warm.clone());
		}
		// Who has waited for that does not wait for another.
		if let Some((when, why)) = &*locked(&self.failure)
			&& *when > asked
		{
			return Err(why.clone());
		}
		let failed = |e: &ApiError| {
			*locked(&self.failure) = Some((Instant::now(), e.clone()));
			pool.metrics.warmed(None);
			error!(function = self.config.full_name(), "not warm: {}", log::words(&e.why));
		};
		let turn = pool.turn_to_warm().await.inspect_err(failed)?;
		let started = Instant::now();
		let warm = timeout(TO_WARM, async {
			let warm = Arc::new(self.start(pool).await?);
			// What it has failed with when it was loaded its first clone says.
			let mut first = self.fresh(pool, &warm, turn.clone()).await?.map_err(ApiError::service)?;
			let begun = first.begin().await;
			append(&self.log, &first.printed());
			begun.map_err(|why| ApiError::not_ready(format!("the function fails when it is loaded: {why}")))?;
			Ok((warm, first))
		});
		let warm =
			warm.await.unwrap_or_else(|_| Err(ApiError::not_ready("the function is not warm after 120 seconds")));
		let (warm, first) = warm.inspect_err(failed)?;
		pool.metrics.warmed(Some(started.elapsed()));
		info!(function = self.config.full_name(), ms = started.elapsed().as_millis() as u64, "warm");
		self.parked.put(&pool.fresh, first);
		*locked(&self.failure) = None;
		*place = Some(warm.clone());
		self.turns(pool, true);
		Ok(warm)
	}

	fn turns(&self, pool: &Pool, warm: bool) {
		self.is_warm.store(warm, Relaxed);
		pool.changed.notify_one();
	}

	/// Whether there is a template, as far as is known.
	pub fn is_warm(&self) -> bool {
		self.is_warm.load(Relaxed)
	}

	/// Whether it could not be warmed lately.
	pub fn has_failed(&self) -> bool {
		locked(&self.failure).as_ref().is_some_and(|(when, _)| when.elapsed() < LATELY)
	}

	/// Whether it is being warmed.
	pub fn is_warming(&self) -> bool {
		!self.is_warm() && self.template.try_lock().is_err()
	}

	async fn start(&self, pool: &Pool) -> Result<Warm> {
		if let Some(template) = &self.config.vm {
			let (code, log) = (self.config.code(&pool.state), |bytes: &[u8]| append(&self.log, bytes));
			return Ok(Warm::Machine(Arc::new(pool.machines.warm(&self.config, template, &code, log).await?)));
		}
		let mut config = self.config.clone();
		config.secrets.clear();
		let order = Order {
			state: pool.state.clone(),
			code: config.code(&pool.state),
			program: pool.programs.of(&config, &warden::task_root(&pool.state))?,
			shim: pool.shim.clone(),
			config,
			namespaces: NAMESPACES + 4 * pool.concurrency,
		};
		let mut warden = tokio::process::Command::new("/proc/self/exe")
			.arg(crate::WARDEN)
			.env_clear()
			.stdin(Stdio::piped())
			.stdout(Stdio::piped())
			.stderr(Stdio::piped())
			.kill_on_drop(true)
			.spawn()?;
		let group = pool.groups.as_ref().map(Groups::add).transpose()?;
		if let (Some(group), Some(pid)) = (&group, warden.id()) {
			group.put(pid)?;
		}
		let streams = (warden.stdin.take(), warden.stdout.take(), warden.stderr.take());
		let (Some(mut line), Some(told), Some(mut errors)) = streams else {
			return Err(ApiError::service("a warden without streams"));
		};
		let log = self.log.clone();
		tokio::spawn(async move {
			let mut bytes = vec![0; 4096];
			while let Ok(count @ 1..) = errors.read(&mut bytes).await {
				append(&log, &bytes[..count]);
			}
		});
		let mut text = serde_json::to_vec(&order).map_err(ApiError::service)?;
		text.push(b'\n');
		line.write_all(&text).await?;
		let mut answer = String::new();
		BufReader::new(told).read_line(&mut answer).await?;
		let told = serde_json::from_str(&answer).unwrap_or_else(|_| Told::Err("its warden has ended".into()));
		let (data, threads) =
			told.map_err(|why| ApiError::not_ready(format!("the function can't be warmed: {why}")))?;
		let outer = warden.id().unwrap_or_default();
		let pid = Pid::from_raw(outer as i32).ok_or_else(|| ApiError::service("its warden has ended"))?;
		let end = Arc::new(pidfd_open(pid, PidfdFlags::empty()).map_err(std::io::Error::from)?);
		let names = format!("/proc/{outer}/root{}", warden::names(&pool.state).display());
		let names = Directory::find(names).map_err(ApiError::service)?;
		let names = names.ok_or_else(|| ApiError::service("a warden without a directory of names"))?;
		let inner = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"))?;
		let seen = format!("/proc/{}/root", inner.trim());
		let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
		let seen = rustix::fs::open(seen, flags, Mode::empty()).map_err(std::io::Error::from)?;
		let clones = 2 * pool.concurrency as u64;
		let limit =
			|group: Group| Ok::<_, ApiError>((group.limit_template(self.config.memory_size << 20, clones)?, group));
		let group = group.map(limit).transpose()?;
		Ok(Warm::Process(Arc::new(Warmed { names, data, threads, seen, warden, end, _line: line, group })))
	}

	/// Calls it. Dropped, the call ends with all that it has started.
	pub async fn call(
		self: &Arc<Self>,
		pool: &Arc<Pool>,
		slot: OwnedSemaphorePermit,
		id: String,
		payload: Bytes,
		client_context: Option<HeaderValue>,
	) -> Result<Outcome> {
		let mut running = pool.metrics.call(self.config.full_name(), id.clone());
		let slot = Arc::new(slot);
		let limit = Duration::from_secs(self.config.timeout);
		let mut may_wait = true;
		let (mut instance, came, begun) = loop {
			let found = async {
				match if may_wait { self.parked.take().await } else { None } {
					Some(instance) => Ok((instance, true)),
					None => Ok((self.instance(pool, &slot).await?, false)),
				}
			};
			let found: Result<_> = found.instrument(debug_span!("clone")).await;
			let (mut instance, has_waited) = found.inspect_err(|_| running.end = End::not_begun)?;
			self.ahead(pool);
			// Nobody waits for its end, but no other call takes its place before.
			instance.hold(Some(slot.clone()));
			let begun = Instant::now();
			let deadline = (SystemTime::now() + limit).duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
			let (arn, payload, client_context) = (self.config.arn(), payload.clone(), client_context.clone());
			let call = Call { id: id.clone(), invocation: uuid(), arn, deadline, client_context, payload };
			let came = instance.call(call, begun + limit, limit).instrument(debug_span!("run")).await;
			// It may have ended while it waited: then one is made for this call. All may end so: it is the last.
			if !(has_waited && came.is_err() && !instance.has_begun() && begun.elapsed() < limit) {
				break (instance, came, begun);
			}
			may_wait = false;
		};
		let printed = instance.printed();
		let again = matches!(came, Ok(Answer::Done(_) | Answer::Failed(_)))
			&& instance.calls < self.config.reuse
			&& instance.speaks();
		if again {
			instance.hold(None);
			// Dropped where there is no place.
			self.parked.put(&pool.used, instance);
		}
		running.end = match &came {
			Ok(Answer::Done(_)) => End::succeeded,
			Err((TIMED_OUT, _)) => End::timed_out,
			_ => End::failed,
		};
		let (payload, failed) = match came {
			Ok(Answer::Done(payload)) => (payload, false),
			Ok(Answer::Failed(payload)) => (payload, true),
			Ok(Answer::TooLarge) => {
				let why = format!("RequestId: {id} Error: the answer is larger than {} bytes", MOST);
				(error("Function.ResponseSizeTooLarge", &why), true)
			}
			Err((kind, why)) => (error(kind, &why), true),
		};
		let ms = begun.elapsed().as_micros() as f64 / 1e3;
		let tail = self.keep_log(&id, ms, printed);
		Ok(Outcome { payload, failed, tail, slot: Some(slot) })
	}

	/// Has a fresh clone wait for the next call, if none does. Where clones are used again those wait.
	fn ahead(self: &Arc<Self>, pool: &Arc<Pool>) {
		if self.config.reuse > 1 || !self.parked.is_empty() {
			return;
		}
		let Some(sender) = self.parked.place(&pool.fresh) else { return };
		let (function, pool) = (self.clone(), pool.clone());
		tokio::spawn(async move {
			let Some(warm) = function.template.lock().await.clone() else { return };
			let made = function.fresh(&pool, &warm, ()).await;
			if let Ok(Err(why)) = &made {
				function.forget(&pool, &warm, why).await;
			}
			match made.and_then(|made| made.map_err(ApiError::service)) {
				Ok(instance) => drop(sender.send(instance)),
				// The next call tries for itself, and its caller is told.
				Err(e) => {
					let why = log::words(&e);
					info!(function = function.config.full_name(), "no clone waits for the next call: {why}");
				}
			}
		});
	}

	/// A clone for a call whose place is taken until it is made, also where nobody waits for it any more.
	async fn instance(self: &Arc<Self>, pool: &Arc<Pool>, slot: &Arc<OwnedSemaphorePermit>) -> Result<Instance> {
		let mut tried = 0;
		loop {
			let warm = self.warm(pool).await?;
			match self.fresh(pool, &warm, slot.clone()).await? {
				Ok(instance) => return Ok(instance),
				Err(e) => {
					self.forget(pool, &warm, &e).await;
					let again =
						matches!(e, TemplateError::Gone(_) | TemplateError::Nobody(_) | TemplateError::Stale(_));
					if !again || tried == 3 {
						return Err(ApiError::service(e));
					}
					tried += 1;
				}
			}
		}
	}

	/// Has the next call warm the function anew, where this is why its template makes no clone.
	async fn forget(&self, pool: &Pool, warm: &Arc<Warm>, why: &TemplateError) {
		if !matches!(
			why,
			TemplateError::Gone(_)
				| TemplateError::Nobody(_)
				| TemplateError::Stale(_)
				| TemplateError::Stopped { .. }
				| TemplateError::Silent { .. }
				| TemplateError::Misunderstood { .. }
		) {
			return;
		}
		let mut place = self.template.lock().await;
		// Somebody else may have made it anew.
		if place.as_ref().is_some_and(|now| Arc::ptr_eq(now, warm)) {
			*place = None;
			self.turns(pool, false);
		}
	}

	/// A new clone; what is `held` is so until it is made.
	async fn fresh(
		self: &Arc<Self>,
		pool: &Arc<Pool>,
		warm: &Arc<Warm>,
		held: impl Send + 'static,
	) -> Result<std::result::Result<Instance, TemplateError>> {
		let warm = match &**warm {
			Warm::Process(warm) => warm.clone(),
			Warm::Machine(template) => {
				let started = Instant::now();
				let made = pool.machines.instance(template, held).await?;
				pool.metrics.cloned(started.elapsed());
				return Ok(made.map_err(|machine::Gone| TemplateError::Gone(NAME.parse().expect("it is a name"))));
			}
		};
		let (function, pool) = (self.clone(), pool.clone());
		let made = tokio::task::spawn_blocking(move || {
			let _held = held;
			let of_call =
				|(groups, (has, _)): (_, &(u64, _))| Groups::of_call(groups, has + (function.config.memory_size << 20));
			let group = pool.groups.as_ref().zip(warm.group.as_ref()).map(of_call).transpose()?;
			let (source, theirs) = Source::new(group.as_ref().map(Group::door).transpose()?)?;
			let (reader, writer) = std::io::pipe()?;
			let known = usage::Process {
				warden: warm.warden.id().unwrap_or_default(),
				// That of the warden's inner process, a keeper's, and the call's.
				depth: if warm.threads { 3 } else { 2 },
				socket: rustix::fs::fstat(&theirs).map_err(ApiError::service)?.st_ino,
			};
			match function.clone_of(&pool, &warm, &[theirs, writer.into()]) {
				Ok(process) => {
					let running = Running::new(process, known, warm.end.clone(), group)?;
					Ok(Ok(Instance::new(Body::Process(running), reader, |line| source.serve(line))?))
				}
				Err(e) => Ok(Err(e)),
			}
		});
		made.await.map_err(ApiError::service)?
	}

	/// Bytes of data that each process of a call may have, with `data` kilobytes that are warmed.
	fn most_data(&self, data: u64) -> u64 {
		(data << 10) + (self.config.memory_size << 20)
	}

	fn clone_of(
		&self,
		pool: &Pool,
		warm: &Warmed,
		[stream, log]: &[OwnedFd; 2],
	) -> std::result::Result<Process, TemplateError> {
		let template = Template::named(&warm.names, NAME.parse().expect("it is a name"));
		let started = Instant::now();
		let process = template
			.run()
			.envs(warden::environment(&warden::task_root(&pool.state), &self.config))
			.envs(&self.config.secrets)
			.current_dir(format!("/proc/self/fd/{}", warm.seen.as_raw_fd()))
			.umask(0o022)
			.apart()
			.streams([Some(stream.as_fd()), Some(log.as_fd()), Some(log.as_fd())])
			.limit(libc::RLIMIT_DATA, self.most_data(warm.data))
			.limit(libc::RLIMIT_NPROC, MOST_PROCESSES)
			.limit(libc::RLIMIT_NOFILE, MOST_DESCRIPTORS)
			.limit(libc::RLIMIT_CORE, 0)
			.start()?;
		pool.metrics.cloned(started.elapsed());
		Ok(process)
	}

	/// Gives the end of it.
	fn keep_log(&self, id: &str, ms: f64, said: Vec<u8>) -> Vec<u8> {
		let mut all = format!("START RequestId: {id} Version: $LATEST\n").into_bytes();
		all.extend(said);
		if all.last() != Some(&b'\n') {
			all.push(b'\n');
		}
		all.extend(format!("END RequestId: {id}\nREPORT RequestId: {id}\tDuration: {ms:.2} ms\n").into_bytes());
		append(&self.log, &all);
		all.split_off(all.len().saturating_sub(TAIL))
	}
}

fn append(log: &Mutex<VecDeque<u8>>, bytes: &[u8]) {
	let mut log = locked(log);
	log.extend(bytes);
	let more = log.len().saturating_sub(LOG);
	log.drain(..more);
}

fn error(kind: &str, why: &str) -> Bytes {
	serde_json::json!({ "errorType": kind, "errorMessage": why }).to_string().into()
}

impl Pool {
	/// How many clones wait for a call, or are being made to do so.
	pub fn parked(&self) -> usize {
		2 * self.concurrency - self.fresh.available_permits() - self.used.available_permits()
	}

	/// How many callers wait for a call to end.
	pub fn waits(&self) -> usize {
		self.most_wait - self.queue.available_permits()
	}

	/// A call that may run at once.
	pub fn free_slot(&self) -> Option<OwnedSemaphorePermit> {
		self.slots.clone().try_acquire_owned().ok()
	}

	/// The turn of a function that is to be warmed, which may have a thread wait for its first clone.
	async fn turn_to_warm(&self) -> Result<Arc<OwnedSemaphorePermit>> {
		let full = "as many functions are being warmed as may; try again later";
		let turn = timeout(TO_WARM, self.warmed.clone().acquire_owned()).await;
		turn.map_err(|_| ApiError::too_many(full))?.map(Arc::new).map_err(ApiError::service)
	}

	/// A call that may run; or too many wait already.
	pub async fn slot(&self) -> Result<OwnedSemaphorePermit> {
		if let Some(slot) = self.free_slot() {
			return Ok(slot);
		}
		let full = "all calls that may run do, and as many wait as may; try again later";
		let _waits = self.queue.try_acquire().map_err(|_| ApiError::too_many(full))?;
		self.slots.clone().acquire_owned().await.map_err(ApiError::service)
	}
}
