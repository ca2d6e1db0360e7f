//! Node in clones: what they have for themselves, and what they run. The reference is Node started anew.

use crate::place::{Place, assert_says, both, flashfork, good, stderr, stdout};
use std::{
	collections::BTreeSet,
	fs,
	os::unix::process::ExitStatusExt,
	process::{Command, Output},
};

fn warm(place: &Place, options: &[&str], command: &[&str]) {
	good(place.run(&[&["warm", "--threads"], options, &["t", "--"], command].concat()));
}

/// As npm's are.
#[test]
fn a_script_that_becomes_node_is_followed() {
	let place = Place::new();
	let app = place.file(
		"app.js",
		"const look = () => require('fs').existsSync(process.argv[2]) ? console.log(Math.random()) : setTimeout(look, 5);
		console.log('up'); look();",
	);
	let wrapper = place.file("run", format!("exec node {} \"$@\"\n", app));
	let go = place.at("go");
	warm(&place, &["--ready", "line:^up$"], &["sh", &wrapper, go.to_str().unwrap()]);
	fs::write(&go, "").unwrap();
	let drawn: BTreeSet<_> = place.clones(0, 4, &[]).iter().map(|clone| stdout(clone).to_owned()).collect();
	assert!(drawn.len() == 4 && drawn.iter().all(|line| line.starts_with("0.")), "{drawn:?}");
}

/// Draws from every generator, in the main thread, in a worker that was there before and in those of every kind that
/// come later; before, at once and a while after. Each line of a clone is a value, with the process's number last.
const GENERATORS: &str = r#"
const crypto = require('crypto');
const { Worker, SHARE_ENV } = require('worker_threads');
const { randomUUID } = crypto;
const vm = require('vm');
const context = vm.createContext();
const text = `
	const crypto = require('crypto');
	const { parentPort } = require('worker_threads');
	const draw = () => [Math.random(), crypto.randomUUID(), crypto.webcrypto.randomUUID(),
		crypto.randomInt(2 ** 48 - 1), crypto.randomBytes(8).toString('hex')];
	draw();
	parentPort.on('message', () => parentPort.postMessage([...draw(), ...draw(), process.pid]));`;
const draw = () => [Math.random(), randomUUID(), crypto.webcrypto.randomUUID(), crypto.randomInt(2 ** 48 - 1),
	crypto.randomBytes(8).toString('hex'), vm.runInContext('Math.random()', context), vm.runInNewContext('Math.random()'),
	new vm.Script('Math.random()').runInNewContext({ Object: null })];
const worker = (options) => new Worker(text, { eval: true, ...options });
const ask = (who) => new Promise((done) => { who.once('message', done); who.postMessage(0); });
const integer = () => new Promise((done) => crypto.randomInt(0, 2 ** 48 - 1, (_, number) => done(number)));
const early = worker();
(async () => {
	const before = [...draw(), await integer(), ...(await ask(early)).slice(0, -1)];
	const pid = process.pid;
	console.log(`warm ${before.join(' ')}`);
	setTimeout(async () => {
		const all = [...draw(), await integer()];
		const kinds = [{}, { env: { A: '1' } }, { execArgv: [] }, { env: SHARE_ENV }, { execArgv: [], env: { A: '1' } }];
		const workers = [early, ...kinds.map(worker)];
		const pids = new Set([process.pid]);
		for (const round of [0, 1]) {
			for (const who of workers) {
				const told = await ask(who);
				pids.add(told.pop());
				all.push(...told);
			}
			all.push(...draw(), await integer());
			if (round === 0) await new Promise((done) => setTimeout(done, 150));
		}
		console.log(all.join('\n'));
		console.log([...pids].join(' '), process.pid !== pid, require('fs').readlinkSync('/proc/self'));
		process.exit(0);
	}, 300);
})();
"#;

#[test]
fn no_value_of_nodes_generators_comes_twice_in_clones_and_their_template() {
	let place = Place::new();
	let script = place.file("main.js", GENERATORS);
	warm(&place, &["--ready", "line:^warm "], &["node", &script]);
	let mut seen = BTreeSet::new();
	for clone in place.clones(2, 3, &[]) {
		assert_eq!((stderr(&clone), clone.status.code()), ("", Some(0)));
		let lines: Vec<_> = stdout(&clone).lines().collect();
		let (numbers, values) = lines.split_last().unwrap();
		assert_eq!(values.len(), 9 + 2 * (6 * 10 + 9));
		for value in values {
			assert!(seen.insert((*value).to_owned()), "{value} twice");
		}
		// One number in all threads, which is the clone's own.
		let words: Vec<_> = numbers.split(' ').collect();
		assert!(words.len() == 3 && words[0] == words[2] && words[1] == "true", "{numbers}");
	}
}

/// In a loop that is stopped anywhere, compiled or not: what was drawn before it stood still all clones have, no more.
#[test]
fn a_loop_that_draws_goes_on_with_other_numbers_in_each_clone() {
	let place = Place::new();
	// Not in the main thread: a recursive mutex that this holds when it is stopped its clones can't unlock.
	let text = "
		const { Worker } = require('worker_threads');
		const worker = new Worker(`
			const { parentPort } = require('worker_threads');
			const drawn = new Float64Array(2000);
			let count = 0;
			function draw() { for (let i = 0; i < 1000; i++) drawn[count++ % drawn.length] = Math.random(); }
			while (count < 5e6) draw();
			const pid = process.pid;
			parentPort.postMessage('warm');
			while (process.pid === pid) draw();
			draw();
			draw();
			parentPort.postMessage(Array.from(drawn).join(' '));`, { eval: true });
		worker.on('message', (text) => { console.log(text); if (text !== 'warm') process.exit(0); });";
	let script = place.file("main.js", text);
	warm(&place, &["--ready", "line:^warm"], &["node", &script]);
	let mut seen = BTreeSet::new();
	for _ in 0..3 {
		let clone = place.cloned();
		assert_eq!(clone.status.code(), Some(0), "{}", stderr(&clone));
		for value in stdout(&clone).split_whitespace() {
			assert!(seen.insert(value.to_owned()), "{value} twice");
		}
	}
	assert_eq!(seen.len(), 3 * 2000);
}

#[test]
fn nodes_functions_look_as_they_did_and_its_children_know_nothing() {
	let place = Place::new();
	let text = "
		const crypto = require('crypto');
		const { execFileSync } = require('child_process');
		const about = (f) => [f.name, f.length, 'prototype' in f];
		const ask = 'console.log(process.env.NODE_OPTIONS, process.execArgv, process.env.A)';
		console.log(JSON.stringify([about(Math.random), Math.random.toString(), about(crypto.randomUUID),
			about(crypto.randomInt), Object.keys(process).includes('pid'), typeof process.pid,
			process.env.NODE_OPTIONS, process.execArgv, execFileSync(process.execPath, ['-e', ask]).toString()]));
		const vm = require('vm');
		console.log([vm.createContext, vm.runInNewContext, vm.Script.prototype.runInNewContext].map(about));
		console.log(vm.runInNewContext('this.b = a + 1; [Math.random.name, typeof b]', { a: 1 }));
		try { vm.runInNewContext('1', null) } catch (e) { console.log(e.code) }
		console.log(vm.runInNewContext('Math.random()', { Math: { random: () => 'own' } }), vm.runInNewContext('a', { a: 3 }, 'f.js'));
		try { vm.runInNewContext('eval(1)', {}, { contextCodeGeneration: { strings: false } }) } catch (e) { console.log(e.name) }
		try { crypto.randomUUID(1) } catch (e) { console.log(e.code) }
		try { crypto.randomInt(3, 2) } catch (e) { console.log(e.code) }
		try { crypto.webcrypto.randomUUID.call({}) } catch (e) { console.log(e.code) }
		const numbers = Array.from({ length: 300 }, () => crypto.randomInt(-2, 3));
		console.log(Math.min(...numbers), Math.max(...numbers));";
	let script = place.file("main.js", text);
	let run = |command: &mut Command| {
		let output = good(command.env("A", "x").env("NODE_OPTIONS", "--no-deprecation").output().unwrap());
		stdout(&output).to_owned()
	};
	let plain = run(Command::new("node").args(["-r", "fs"]).arg(&script));
	let plain = plain.replace("function random() {", "function () {");
	let options = ["warm", "--threads", "t", "--", "node", "-r", "fs"];
	run(&mut place.flashfork(&options));
	assert_eq!(run(&mut place.flashfork(&["clone", "t", &script])), plain);
}

#[test]
fn a_clone_of_node_runs_what_its_caller_names_as_node_does_without_the_code_of_the_warm_up() {
	let place = Place::new();
	let library = place.file("library.js", "module.exports = Math.random(); console.error('loaded once')");
	fs::create_dir(place.at("there")).unwrap();
	let there = place.at("there").canonicalize().unwrap();
	let main = place.file(
		"there/main.js",
		"console.log(process.argv.slice(1), process.cwd(), process.env.WORD, require.main === module, module.id,
			__filename, new Date(0).getHours(), process.execArgv, process._eval);
		let text = '';
		process.stdin.on('data', (part) => text += part).on('end', () => { console.log(text); process.exitCode = 7; });
		process.on('beforeExit', () => { console.log('before') });
		process.on('exit', (code) => { console.log('exit', code) });",
	);
	let module =
		place.file("there/main.mjs", "console.log(await Promise.resolve(process.argv.slice(2))); export default 1");
	let throws =
		place.file("there/throws.js", "process.on('exit', (code) => console.log(code)); throw new Error('wrong')");
	place.file(
		"there/fork.js",
		"const cluster = require('cluster'); cluster.isPrimary ? cluster.fork() : process.exit(console.log(1))",
	);
	let code = format!("require({library:?})");
	let options = ["warm", "--threads", "t", "--", "node", "-e", &code];
	let warm = place.flashfork(&options).env("TZ", "Asia/Tokyo").output().unwrap();
	assert_eq!((warm.status.code(), stderr(&warm)), (Some(0), "loaded once\n"));
	assert_eq!(place.list()[0]["ready"], "node");
	let run = |mut command: Command, arguments: &[&str]| {
		command.args(arguments).current_dir(&there).env("WORD", "of caller").env("TZ", "America/New_York");
		let input = fs::File::open(&throws).unwrap();
		command.stdin(input).output().unwrap()
	};
	let (main, module, throws) = (&main, &module, &throws);
	let all: [&[&str]; 13] = [
		&[main, "a", "-b", "--", "c d"],
		&["main.js"],
		&[module, "x"],
		&["-p", "[6 * 7, process.argv.slice(1), require('os').EOL, path.sep, process.execArgv, process._eval]", "word"],
		&["fork.js"],
		&["-e", "console.log(process.argv.slice(1), __filename, typeof module); process.exitCode = 3", "a"],
		&["-e", "import('fs').then((fs) => console.log(typeof fs.readFileSync, process.argv.length))"],
		&["-e", "import('./main.mjs').then((main) => console.log(main.default))", "a"],
		&["-e", "setTimeout(() => process.kill(process.pid, 'SIGTERM'), 10); setInterval(() => 0, 1000)"],
		&[throws],
		&["-"],
		&[],
		&["missing.js"],
	];
	for arguments in all {
		let plain = run(Command::new("node"), arguments);
		let clone = run(place.flashfork(&["clone", "t"]), arguments);
		assert_eq!(stdout(&clone), stdout(&plain), "{arguments:?}: {}", stderr(&clone));
		let end = |output: &Output| (output.status.code(), output.status.signal());
		assert_eq!(end(&clone), end(&plain), "{arguments:?}: {}", stderr(&clone));
		let about = |output: &Output| stderr(output).lines().find(|line| line.contains("Error")).map(str::to_owned);
		assert_eq!(about(&clone), about(&plain), "{arguments:?}");
	}
	let refused = run(place.flashfork(&["clone", "t"]), &["--inspect", main]);
	assert_eq!(refused.status.code(), Some(9));
	assert_says(stderr(&refused), "write --inspect where it is warmed");
}

#[test]
fn output_of_a_node_clone_is_for_the_kind_of_file_that_its_caller_has() {
	let place = Place::new();
	place.file("warm.js", "console.log({ w: 1 }); console.error(1); process.stdout.on('error', () => 0)");
	place
		.file("show.js", "console.log(process.stdout.isTTY, process.stdout.listenerCount('error')); console.error({})");
	for warmed in [true, false] {
		place.written(warmed, &format!("{} warm --threads t -- node -r ./warm.js", flashfork()));
		for terminal in [true, false] {
			let clone = place.written(terminal, &format!("{} clone t show.js", flashfork()));
			let plain = place.written(terminal, "node -r ./warm.js show.js");
			assert!(!clone.is_empty() && plain.ends_with(&clone), "{clone:?} {plain:?}");
		}
		place.remove();
	}
}

#[test]
fn a_node_program_that_knows_of_clones_has_its_callers_arguments_and_environment() {
	let place = Place::new();
	let library = place.shim().with_file_name("flashfork.js");
	let text = format!(
		"const {{ ready }} = require({library:?});
		const {{ Worker }} = require('worker_threads');
		const worker = new Worker(`const {{ parentPort }} = require('worker_threads'); parentPort.on('message', (n) => parentPort.postMessage(n * n)); parentPort.postMessage(0)`, {{ eval: true }});
		worker.once('message', () => {{
			const started = ready();
			console.log(started?.args, started?.env.WORD, process.argv.slice(2), process.env.WORD, ready());
			worker.once('message', (n) => {{ console.log(n); process.exit(started === undefined ? 1 : 2); }});
			worker.postMessage(9);
		}});"
	);
	let script = place.file("main.js", &text);
	let script = script.as_str();
	let plain = Command::new("node").args([script, "own"]).env("WORD", "w").output().unwrap();
	assert_eq!((stdout(&plain), plain.status.code()), ("undefined undefined [ 'own' ] w undefined\n81\n", Some(1)));
	warm(&place, &["--ready", "call"], &["node", script, "own"]);
	for (argument, word) in [("one", "1"), ("two", "2")] {
		let clone = place.flashfork(&["clone", "t", argument]).env("WORD", word).output().unwrap();
		let want = format!("[ '{argument}' ] {word} [ 'own', '{argument}' ] {word} undefined\n81\n");
		assert_eq!((stdout(&clone), clone.status.code()), (want.as_str(), Some(2)), "{}", stderr(&clone));
	}
}

/// They looked for the shim in a file of /proc, with which no template could be made.
#[test]
fn a_template_can_be_made_while_workers_of_node_begin() {
	let place = Place::new();
	let library = place.shim().with_file_name("flashfork.js");
	let text = format!(
		"const {{ Worker }} = require('worker_threads');
		const text = `if (!require('worker_threads').getEnvironmentData('flashfork')) throw new Error('not told')`;
		for (let i = 0; i < 8; i++) new Worker(text, {{ eval: true }});
		const end = Date.now() + Number(process.argv[2]);
		while (Date.now() < end);
		require({library:?}).ready();"
	);
	let script = place.file("main.js", &text);
	for milliseconds in ["5", "20", "40", "60"] {
		warm(&place, &["--ready", "call"], &["node", &script, milliseconds]);
		assert_eq!(both(&place.cloned()), ("", ""));
		place.remove();
	}
}

/// V8 has its heap in pieces of 256 KB, here and there, and many of them.
#[test]
fn nodes_heap_is_sealed_and_is_each_clones_own() {
	let place = Place::new();
	let text = "
		globalThis.all = [];
		for (let i = 0; i < 400000; i++) all.push({ i, text: `x${i}` });
		globalThis.sum = () => all.reduce((sum, one) => sum + one.i + one.text.length, 0);";
	let library = place.file("library.js", text);
	warm(&place, &[], &["node", "--expose-gc", "-r", &library]);
	let sealed = place.list()[0]["sealed_bytes"].as_u64().unwrap();
	assert!(sealed > 40 << 20, "{sealed}");
	// Every second object is another, and every page of the heap is written to.
	let code = "
		const before = sum();
		for (let i = 0; i < all.length; i += 2) all[i] = { i: all[i].i + 1, text: `y${i}` };
		gc();
		const grown = Array.from({ length: 100000 }, (_, i) => ({ i }));
		gc();
		console.log(before, sum() - before, grown.length);";
	for _ in 0..2 {
		let clone = place.run(&["clone", "t", "-e", code]);
		assert_eq!(both(&clone), ("80002488890 200000 100000\n", ""));
	}
}

/// As newer versions do without being told.
#[test]
fn a_node_whose_event_loop_would_have_a_ring_is_cloned() {
	let place = Place::new();
	let text = "
		const fs = require('fs');
		const { pid } = process;
		fs.readFile('/proc/self/comm', () => require('net').createServer().listen(0, '127.0.0.1'));
		setInterval(() => {
			if (process.pid === pid) return;
			fs.readFile('/proc/self/stat', 'utf8', (_, text) => {
				console.log(parseInt(text) === process.pid);
				process.exit(0);
			});
		}, 20);";
	let script = place.file("main.js", text);
	let options = ["warm", "--threads", "--ready", "listen", "t", "--", "node", &script];
	let warm = place.flashfork(&options).env("UV_USE_IO_URING", "1").output().unwrap();
	assert_eq!((warm.status.code(), stderr(&warm)), (Some(0), ""));
	for clone in place.clones(0, 3, &[]) {
		assert_eq!(both(&clone), ("true\n", ""));
	}
}
