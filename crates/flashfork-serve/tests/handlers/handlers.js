// Functions that tests call by the name in "do".
const { spawn } = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const path = require('path');

const warmedWith = [process.env.SECRET ?? null, process.env.PLAIN ?? null];
const born = crypto.randomBytes(8).toString('hex');
// Whoever draws before the template is made leaves these generators with something prepared.
const drawn = [Math.random(), crypto.randomUUID(), crypto.randomInt(1000)];
let calls = 0;

const attempt = (what) => { try { return what(); } catch (error) { return error.code; } };

const all = {
	echo(event, context) {
		console.log('said by', context.functionName, drawn.length);
		return event;
	},

	// What this call finds, and leaves.
	look(event) {
		calls += 1;
		const found = { calls, files: [...fs.readdirSync('/tmp'), ...fs.readdirSync('/dev/shm')], warmedWith };
		for (const place of ['/tmp/left', '/dev/shm/left']) fs.writeFileSync(place, 'secret');
		const places = [process.cwd(), path.dirname(process.cwd()), '/var/tmp', path.dirname(event.state)];
		found.writable = places.filter((place) => attempt(() => fs.writeFileSync(path.join(place, 'left'), '')) === undefined);
		found.processes = fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name)).length;
		found.state = fs.readdirSync(event.state).sort();
		found.names = fs.readdirSync(event.state + '/names');
		found.random = [Math.random(), crypto.randomUUID(), crypto.randomInt(2 ** 40), crypto.randomBytes(8).toString('hex'),
			crypto.webcrypto.getRandomValues(new Uint32Array(2)).join()];
		const status = fs.readFileSync('/proc/self/status', 'utf8');
		found.rights = [...status.matchAll(/^Cap\w+:\s*(\w+)/gm)].map((match) => match[1]);
		found.bound = /^NoNewPrivs:\s*(\d)/m.exec(status)[1];
		return { ...found, secret: process.env.SECRET, user: process.getuid(), directory: process.cwd() };
	},

	fail() { throw new TypeError('it failed'); },
	later: () => new Promise((_, reject) => setTimeout(() => reject(new RangeError('it failed later')), 1)),
	stray() { setImmediate(() => { throw new EvalError('nobody catches it'); }); return new Promise(() => {}); },
	leave() { process.exit(3); },
	crash() { process.kill(process.pid, 'SIGSEGV'); return new Promise(() => {}); },
	spin() { for (;;); },
	sleep: () => new Promise((done) => setTimeout(done, 1e6)),
	large: () => 'x'.repeat(7 << 20),
	buffer: () => Buffer.alloc(3 * 2 ** 30, 1).length,
	heap() { for (const all = []; ; ) all.push(new Array(1e5).fill({})); },

	// Leaves processes that have gone their own way.
	async fork(event, context) {
		for (let i = 0; i < 3; i += 1) spawn('/bin/sleep', ['1000'], { argv0: 'sleep-' + event.word, detached: true }).unref();
		if (event.then) return all[event.then](event, context);
		return null;
	},

	async breed() {
		for (let count = 0; count < 5000; count += 1) {
			const child = spawn('/bin/sleep', ['1000'], { stdio: 'ignore' });
			if (await new Promise((done) => child.on('spawn', () => done(false)).on('error', () => done(true)))) return count;
		}
		return 5000;
	},

	born: () => born,
	// A thread of its own, the threads of libuv's pool, and a child that sees what this call's environment is.
	async threads() {
		const { Worker } = require('worker_threads');
		const worker = new Worker('require("worker_threads").parentPort.postMessage([Math.random(), process.env.SECRET])', { eval: true });
		const told = await new Promise((done, failed) => worker.on('message', done).on('error', failed));
		const keys = await Promise.all([1, 2, 3, 4, 5].map((salt) => new Promise((done, failed) =>
			crypto.scrypt('word', String(salt), 8, (error, key) => error ? failed(error) : done(key.toString('hex'))))));
		const child = require('child_process').execFileSync('/bin/sh', ['-c', 'echo $SECRET $LD_PRELOAD $NODE_OPTIONS']).toString();
		return { told, keys: new Set(keys).size, child };
	},
};

exports.handler = async (event, context) => all[event.do ?? 'echo'](event, context);
// It never answers: with nothing left to do the runtime client does.
exports.nothing = (event, context, callback) => {};
exports.callback = (event, context, callback) => setTimeout(() => callback(null, { got: event }), 1);
exports.stream = awslambda.streamifyResponse(async (event, stream) => {
	stream.setContentType('application/json');
	stream.write('{"parts":[1');
	await new Promise((done) => setTimeout(done, 1));
	if (event.fails) throw new TypeError('in the middle');
	stream.write(',2]}');
	stream.end();
	await new Promise((done) => stream.on('finish', done));
});
