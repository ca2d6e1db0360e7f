// Node in a template of `flashfork warm --threads`. Loaded before the program's own code, in each of its threads; also
// a module that the program may load itself, with the function `ready`.
//
// Clones have the template's memory: what a program's generators of random numbers have prepared, and its number. Here
// they get their own, by a word that the clone changes before its threads run. A value is drawn first, and then the
// word is looked at: a thread that was stopped in between draws once more.
'use strict';

const fs = require('fs');
const Module = require('module');
const path = require('path');
const { Readable, Writable } = require('stream');
const threads = require('worker_threads');
const tty = require('tty');
const vm = require('vm');

// Where a program is ready, as the shim says it.
const [AT_CALL, AUTO] = [1, 2];

// Other copies of this file share what is made once in each thread.
const KEY = Symbol.for('flashfork');

if (process[KEY] === undefined) {
	const made = begin(addon());
	Object.defineProperty(process, KEY, { value: made });
}
module.exports = process[KEY];

// The shim, where it is loaded: any other process is no template. Workers are told where it is: while one reads files
// of /proc there can be no template.
function addon() {
	let place = threads.getEnvironmentData?.('flashfork');
	if (place === undefined) {
		const shim = /\s(\/.*\/libflashfork_preload\.so)$/m.exec(fs.readFileSync('/proc/self/maps', 'utf8'));
		if (shim === null) return undefined;
		place = shim[1];
		threads.setEnvironmentData?.('flashfork', place);
	}
	const module = { exports: {} };
	process.dlopen(module, place);
	return module.exports;
}

function begin(shim) {
	const at = shim === undefined ? 0 : shim.at();
	if (at === 0) return { ready: () => undefined };
	if (shim.word === undefined) {
		throw new Error('flashfork: this Node can not share memory with addons, so clones could not renew its random numbers');
	}
	const word = new Int32Array(shim.word);
	const isClone = () => Atomics.load(word, 0) !== 0;
	hideFromChildren();
	renewRandom(shim, word);
	renewCrypto(isClone);
	renewNumber(shim, isClone);
	loadInWorkers();
	Module.syncBuiltinESMExports();
	if (!threads.isMainThread) {
		const ready = () => { throw new Error('flashfork: ready() is for the main thread'); };
		return { ready };
	}
	renewOutput('stdout', 1, isClone);
	renewOutput('stderr', 2, isClone);
	if (at === AUTO) {
		renewInput(isClone);
		process.once('beforeExit', () => launch(shim));
	}
	let asked = false;
	const ready = () => {
		if (at !== AT_CALL || asked) return undefined;
		asked = true;
		const args = enter(shim);
		process.argv.push(...args);
		return { args, env: process.env };
	};
	return { ready };
}

// The option by which this file is loaded, which the program's own children have no use for.
function hideFromChildren() {
	const own = `--require=${__filename}`;
	if (process.env.NODE_OPTIONS?.startsWith(own)) {
		const rest = process.env.NODE_OPTIONS.slice(own.length).trim();
		if (rest === '') delete process.env.NODE_OPTIONS;
		else process.env.NODE_OPTIONS = rest;
	}
	if (process.execArgv[0] === own) process.execArgv.shift();
	else if (!threads.isMainThread) process.execArgv = threads.getEnvironmentData?.('flashfork-argv') ?? process.execArgv;
}

function renewRandom(shim, word) {
	const own = () => [shim.fill, word, new Float64Array(1024), Atomics.load, Object.defineProperty];
	renewMath(...own());
	// Each context has numbers of its own, which go on from a seed of the template's, also of one made in a clone.
	const { Script, createContext, isContext, runInContext, runInNewContext } = vm;
	const made = function (object = {}, options) {
		const isNew = object === null || typeof object !== 'object' || !isContext(object);
		const context = createContext(object, options);
		// One that was given has been seen to where it comes from.
		if (isNew && !(typeof object === 'object' && 'Math' in object)) runInContext(`(${renewMath})`, context)(...own());
		return context;
	};
	const named = (options) => ({ name: options?.contextName, origin: options?.contextOrigin,
		codeGeneration: options?.contextCodeGeneration, microtaskMode: options?.microtaskMode });
	vm.createContext = like(createContext, made);
	vm.runInNewContext = like(runInNewContext, function (code, object, options) {
		return runInNewContext(code, made(object, named(options)), options);
	});
	const { runInNewContext: run } = Script.prototype;
	const method = { run(object, options) { return run.call(this, made(object, named(options)), options); } };
	Script.prototype.runInNewContext = like(run, method.run);
}

// In the context in which it is a function; by its text it comes to others, of which all but Math may be anybody's.
function renewMath(fill, word, numbers, load, define) {
	const drawn = Math.random;
	let left = 0;
	let renewed = false;
	const own = () => {
		if (left === 0) {
			fill(numbers);
			left = numbers.length;
		}
		return numbers[--left];
	};
	// Bound, it shows itself as a function of the engine's own.
	const random = function () {
		if (renewed) return own();
		const number = drawn();
		if (load(word, 0) === 0) return number;
		renewed = true;
		return own();
	}.bind();
	Math.random = define(random, 'name', { value: 'random', configurable: true });
}

function like(before, after) {
	return Object.defineProperties(after, Object.getOwnPropertyDescriptors(before));
}

// What Node keeps of prepared bytes: OpenSSL's own generator sees by the process's number that it is in a clone.
function renewCrypto(isClone) {
	if (process.versions.openssl === undefined) return;
	const crypto = require('crypto');
	const { randomUUID, randomInt } = crypto;
	const fresh = (drawn) => function (...options) {
		const id = drawn.apply(this, options);
		return isClone() ? randomUUID({ disableEntropyCache: true }) : id;
	};
	crypto.randomUUID = like(randomUUID, fresh(randomUUID));
	const web = Object.getPrototypeOf(crypto.webcrypto ?? {});
	const property = Object.getOwnPropertyDescriptor(web, 'randomUUID');
	if (property !== undefined) {
		const value = like(property.value, fresh(property.value));
		Object.defineProperty(web, 'randomUUID', { ...property, value });
	}
	// As Node does it, without what it keeps: 48 bits, those left out of which some numbers would have more.
	const integer = (min, max) => {
		const [low, high] = max === undefined ? [0, min] : [min, max];
		const range = high - low;
		const limit = 2 ** 48 - 2 ** 48 % range;
		for (;;) {
			const number = crypto.randomBytes(6).readUIntBE(0, 6);
			if (number < limit) return number % range + low;
		}
	};
	crypto.randomInt = like(randomInt, function (min, max, callback) {
		const upper = typeof max === 'function' ? undefined : max;
		const done = typeof max === 'function' ? max : callback;
		if (typeof done !== 'function') {
			const number = randomInt(min, max, callback);
			return isClone() ? integer(min, upper) : number;
		}
		const told = (error, number) => done(error, error == null && isClone() ? integer(min, upper) : number);
		return upper === undefined ? randomInt(min, told) : randomInt(min, upper, told);
	});
}

function renewNumber(shim, isClone) {
	const { pid } = process;
	const get = () => isClone() ? shim.pid() : pid;
	Object.defineProperty(process, 'pid', { get, enumerable: true, configurable: true });
}

// Workers with options or an environment of their own would not load this file.
function loadInWorkers() {
	const own = `--require=${__filename}`;
	const withOwn = (options) => {
		if (options === null || typeof options !== 'object') return options;
		if (Array.isArray(options.execArgv)) return { ...options, execArgv: [own, ...options.execArgv] };
		if (options.env === null || typeof options.env !== 'object' || options.env === process.env) return options;
		const before = options.env.NODE_OPTIONS;
		return { ...options, env: { ...options.env, NODE_OPTIONS: before ? `${own} ${before}` : own } };
	};
	threads.Worker = new Proxy(threads.Worker, {
		construct: (Worker, [file, options, ...rest], target) =>
			Reflect.construct(Worker, [file, withOwn(options), ...rest], target),
	});
}

// Node keeps a stream for the kind of file that it finds first. So the warm-up has one of this script's, clones Node's.
function renewOutput(name, fd, isClone) {
	const property = Object.getOwnPropertyDescriptor(process, name);
	const write = (bytes, _, done) => done(fs.writeFileSync(fd, bytes));
	let warm, own;
	const get = () => {
		if (own !== undefined) return own;
		if (!isClone()) {
			warm = warm || Object.assign(tty.isatty(fd) ? new tty.WriteStream(fd) : new Writable({ write }), { fd });
			return warm;
		}
		own = property.get.call(process);
		warm?.listeners('error').forEach((one) => own.on('error', one));
		if (warm?.hasOwnProperty('write')) own.write = warm.write;
		return own;
	};
	Object.defineProperty(process, name, { ...property, get });
	// It would keep the first, too.
	const set = (value) => Object.defineProperty(console, `_${name}`, { value, writable: true });
	Object.defineProperty(console, `_${name}`, { get: () => process[name], set, configurable: true });
}

// A template has no input; Node reads it where no script is named, and keeps what it has read from.
function renewInput(isClone) {
	const property = Object.getOwnPropertyDescriptor(process, 'stdin');
	const none = new Readable({ read() { this.push(null); } });
	Object.defineProperty(process, 'stdin', { ...property, get: () => isClone() ? property.get.call(process) : none });
}

// Waits; in a clone, which has its caller's environment, directory and arguments, gives the arguments.
function enter(shim) {
	const args = shim.ready();
	// What Node and V8 remember of them.
	if (process.env.TZ === undefined) delete process.env.TZ;
	else process.env.TZ = String(process.env.TZ);
	try {
		process.chdir('.');
	} catch {
		// The directory is gone, or may not be searched: process.cwd() says so.
	}
	return args;
}

// What the command line names has run, and nothing is left to do: clones run what their callers name.
function launch(shim) {
	const args = enter(shim);
	process.exitCode = undefined;
	// As at a program's start: the event loop has turns to come.
	setImmediate(() => run(args));
}

const EVALUATES = /^(-e|-pe?|--eval|--print)$/;

function run([first, ...rest]) {
	const node = process.execPath;
	const evaluates = EVALUATES.test(first) && rest.length > 0;
	// Without the warm-up's code.
	process.execArgv = process.execArgv.filter((word, i, all) =>
		!EVALUATES.test(word.split('=')[0]) && !(EVALUATES.test(all[i - 1]) && word === process._eval));
	delete process._eval;
	if (evaluates) {
		process._eval = rest[0];
		process.execArgv.push(first, rest[0]);
	}
	threads.setEnvironmentData?.('flashfork-argv', process.execArgv);
	if (first === undefined || first === '-') {
		process.argv = first === undefined ? [node] : [node, first, ...rest];
		readAll((code) => evaluate('[stdin]', code, false));
	} else if (evaluates) {
		process.argv = [node, ...rest.slice(rest[1] === '--' ? 2 : 1)];
		evaluate('[eval]', rest[0], first.startsWith('-p') || first === '--print');
	} else if (first.startsWith('-') && first !== '--') {
		console.error(`flashfork: a clone of Node runs a script, -e CODE, -p CODE or standard input; write ${first} where it is warmed`);
		process.exit(9);
	} else {
		const [script, ...words] = first === '--' ? rest : [first, ...rest];
		process.argv = [node, path.resolve(script), ...words];
		try {
			// The program is to run, though it was a module of the template's.
			delete Module._cache[Module._resolveFilename(process.argv[1])];
		} catch {
			// Node says what is missing.
		}
		Module.runMain();
	}
}

function readAll(done) {
	let code = '';
	process.stdin.setEncoding('utf8').on('data', (part) => { code += part; }).on('end', () => done(code));
}

// As Node's own: the code sees what a module does, and the libraries by their names.
function evaluate(name, code, print) {
	const module = new Module(name);
	module.filename = path.join(process.cwd(), name);
	module.paths = Module._nodeModulePaths(process.cwd());
	for (const library of Module.builtinModules.filter((known) => !/^_|\//.test(known) && !(known in globalThis))) {
		const get = () => module.require(library);
		const set = (value) => Object.defineProperty(globalThis, library, { value, writable: true, configurable: true });
		Object.defineProperty(globalThis, library, { get, set, configurable: true });
	}
	Object.assign(globalThis, { module, exports: module.exports, __filename: name, __dirname: '.' });
	module._compile('globalThis.require = require;', `${name}-wrapper`);
	const importModuleDynamically = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
	let result;
	if (importModuleDynamically !== undefined || !/\bimport\b/.test(code)) {
		const script = new vm.Script(code, { filename: name, importModuleDynamically });
		result = script.runInThisContext({ displayErrors: true });
	} else {
		// Before Node 20.12 only a module's code may import; what it evaluates imports as it does.
		const run = module._compile('return (code) => (0, eval)(code);', module.filename);
		result = run(`${code}\n//# sourceURL=${name}`);
	}
	if (print) console.log(result);
}
