//! Runtimes with threads: Java, Node and Python, as Debian has them.

use crate::{
	listen::warm,
	place::{Place, assert_says, both, good, stderr, stdout},
};
use std::{
	collections::BTreeSet,
	process::{Command, Stdio},
};

const PYTHON: &str = "/usr/bin/python3";

/// Reads and writes its heap, collects it, compiles, and starts threads beside those that wait.
const JAVA: &str = r#"
import java.util.*;
import java.util.concurrent.*;

public class Main {
	static byte[][] live = new byte[40][];

	static long work(ExecutorService pool, int from) throws Exception {
		List<Future<Long>> all = new ArrayList<>();
		for (int i = 0; i < 32; i++) {
			int k = from + i;
			all.add(pool.submit(() -> { long s = 0; for (int j = 0; j < 20000; j++) s = s * 31 + (j ^ k); return s; }));
		}
		long sum = 0;
		for (Future<Long> one : all) sum = sum * 17 + one.get();
		return sum;
	}

	public static void main(String[] arguments) throws Exception {
		for (int i = 0; i < live.length; i++) { live[i] = new byte[1 << 20]; Arrays.fill(live[i], (byte) i); }
		ExecutorService pool = Executors.newFixedThreadPool(4);
		long before = work(pool, 0);
		CountDownLatch latch = new CountDownLatch(1);
		Thread waits = new Thread(() -> { try { latch.await(); } catch (InterruptedException e) { } }, "waits");
		waits.start();
		System.out.println("warm");
		System.out.flush();
		Thread.sleep(500);
		long sum = 0;
		for (byte[] one : live) for (int j = 0; j < one.length; j += 512) sum += one[j];
		for (int i = 0; i < 200; i++) live[i % live.length] = new byte[1 << 20];
		System.gc();
		long after = work(pool, 1);
		latch.countDown();
		waits.join();
		pool.shutdown();
		System.out.println(before + " " + after + " " + sum + " " + pool.awaitTermination(1, TimeUnit.MINUTES));
		System.exit(3);
	}
}
"#;

#[test]
fn java_goes_on_in_every_clone_with_every_collector() {
	let place = Place::new();
	place.file("Main.java", JAVA);
	let compiled = Command::new("javac").arg("Main.java").current_dir(place.path()).status().unwrap();
	assert!(compiled.success());
	let path = place.path().to_str().unwrap();
	for collector in ["-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseG1GC", "-XX:+UseShenandoahGC"] {
		let command = ["/usr/bin/java", collector, "-Xms160m", "-Xmx160m", "-cp", path, "Main"];
		let plain = Command::new(command[0]).args(&command[1..]).output().unwrap();
		let want = stdout(&plain).strip_prefix("warm\n").unwrap();
		warm(&place, "line:^warm$", &command);
		for clone in place.clones(3, 3, &[]) {
			assert_eq!((stdout(&clone), stderr(&clone), clone.status.code()), (want, "", Some(3)), "{collector}");
		}
		place.remove();
	}
}

/// Its heap is shared memory mapped more than once: clones would write to each other's.
#[test]
fn javas_zgc_is_refused() {
	let place = Place::new();
	place.file("Main.java", JAVA);
	assert!(Command::new("javac").arg("Main.java").current_dir(place.path()).status().unwrap().success());
	let path = place.path().to_str().unwrap();
	let warm = ["warm", "--threads", "--ready", "line:^warm$", "t", "--"];
	let refused = place.run(&[&warm[..], &["/usr/bin/java", "-XX:+UseZGC", "-Xmx160m", "-cp", path, "Main"]].concat());
	assert_says(stderr(&refused), "choose another collector than ZGC");
}

const NODE: &str = r#"
const http = require('http'), crypto = require('crypto'), fs = require('fs'), zlib = require('zlib');
const { Worker } = require('worker_threads');
const live = []; for (let i = 0; i < 200000; i++) live.push({ i, s: 'x' + i });
const worker = new Worker(`const { parentPort } = require('worker_threads'); parentPort.on('message', n => parentPort.postMessage(n * n));`, { eval: true });
const ask = n => new Promise(done => { worker.once('message', done); worker.postMessage(n); });
const server = http.createServer((_, answer) => answer.end('answer'));
const fetch = port => new Promise(done => http.get({ host: '127.0.0.1', port, agent: false }, a => { let s = ''; a.on('data', d => s += d); a.on('end', () => done(s)); }));
server.listen(0, '127.0.0.1', async () => {
	const first = await ask(7);
	const port = server.address().port;
	await fetch(port);
	console.log('warm');
	setTimeout(async () => {
		let sum = 0; for (const one of live) sum += one.i + one.s.length;
		const all = await Promise.all([ask(9), fs.promises.readFile('/proc/self/comm', 'utf8'),
			new Promise(d => zlib.deflate('a'.repeat(10000), (_, b) => d(b.length))),
			new Promise(d => crypto.pbkdf2('p', 's', 1000, 16, 'sha1', (_, k) => d(k.toString('hex'))))]);
		const own = http.createServer((_, a) => a.end('own')).listen(0, '127.0.0.1', async () => {
			console.log(first, sum, all[0], all[2], all[3], await fetch(own.address().port));
			console.error(crypto.randomBytes(16).toString('hex'));
			process.exit(4);
		});
	}, 500);
});
"#;

#[test]
fn node_goes_on_in_every_clone_with_random_bytes_of_its_own() {
	let place = Place::new();
	let script = place.file("main.js", NODE);
	let plain = Command::new("node").arg(&script).output().unwrap();
	let want = stdout(&plain).strip_prefix("warm\n").unwrap();
	warm(&place, "line:^warm$", &["node", &script]);
	let mut random = BTreeSet::new();
	for clone in place.clones(3, 4, &[]) {
		assert_eq!((stdout(&clone), clone.status.code()), (want, Some(4)), "{}", stderr(&clone));
		assert!(random.insert(stderr(&clone).to_owned()), "{random:?}");
	}
}

#[test]
fn python_runs_its_callers_programs_with_the_threads_of_its_libraries() {
	let place = Place::new();
	let code = "import queue, random, ssl, threading
from concurrent.futures import ThreadPoolExecutor
import numpy
pool = ThreadPoolExecutor(4)
list(pool.map(lambda n: n * n, range(8)))
asked, answered = queue.Queue(), queue.Queue()
def serve():
    while True: answered.put(asked.get() * 2)
threading.Thread(target=serve, daemon=True).start()
numpy.ones((200, 200)) @ numpy.ones((200, 200))
ssl.RAND_bytes(1)
import builtins
builtins.warm = (pool, asked, answered)";
	good(place.run(&["warm", "--threads", "t", "--", PYTHON, "-c", code]));
	let code = "import numpy, ssl, sys, threading
pool, asked, answered = warm
asked.put(21)
a = numpy.arange(40000.0).reshape(200, 200)
def random(_): return ssl.RAND_bytes(16).hex()
print(answered.get(), sum(pool.map(lambda n: n * n, range(100))), (a @ a).sum(), sys.argv[1:])
import random as r, uuid
def number(n): return f'{int(n * 2 ** 52):032x}'
print(ssl.RAND_bytes(16).hex(), next(pool.map(random, [0])), number(r.random()), number(numpy.random.random()), uuid.uuid4().hex, file=sys.stderr)
sys.exit(6)";
	let mut random = BTreeSet::new();
	for clone in place.clones(3, 3, &["-c", code, "a", "b c"]) {
		let want = "42 328350 2133326666800000000.0 ['a', 'b c']\n";
		let (left, right) = stdout(&clone).rsplit_once('[').unwrap();
		assert!(left.starts_with("42 328350 ") && want.ends_with(right), "{}", stdout(&clone));
		assert_eq!(clone.status.code(), Some(6), "{}", stderr(&clone));
		for bytes in stderr(&clone).split_whitespace() {
			assert!(bytes.len() == 32 && random.insert(bytes.to_owned()), "{}", stderr(&clone));
		}
	}
}

/// Its library keeps threads that look after connections. A clone's make new ones.
#[test]
fn grpc_goes_on_in_every_clone() {
	let place = Place::new();
	let script = place.at("rpc.py");
	let code = "import grpc, sys
from concurrent.futures import ThreadPoolExecutor
class Answers(grpc.GenericRpcHandler):
    def service(self, call): return grpc.unary_unary_rpc_method_handler(lambda request, _: request[::-1])
def call(request):
    server = grpc.server(ThreadPoolExecutor(4), handlers=(Answers(),))
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    with grpc.insecure_channel(f'127.0.0.1:{port}') as channel: answer = channel.unary_unary('/a/b')(request, timeout=60)
    server.stop(None).wait()
    return answer.decode()
if len(sys.argv) < 2: call(b'warm')
else: print(call(sys.argv[1].encode()))
";
	std::fs::write(&script, code).unwrap();
	let script = script.to_str().unwrap();
	good(place.run(&["warm", "--threads", "t", "--", PYTHON, script]));
	for clone in place.clones(3, 3, &[script, "abc"]) {
		assert_eq!((stdout(&clone), clone.status.code()), ("cba\n", Some(0)), "{}", stderr(&clone));
	}
}

/// Until Python 3.12 a running loop knows its process by the number.
const LOOPS: &str = r"
import asyncio, os, threading
async def sums():
    total = 0
    for i in range(50):
        await asyncio.sleep(0.002)
        total += i
    return total + await asyncio.to_thread(lambda: 42)
other = asyncio.new_event_loop()
threading.Thread(target=other.run_forever, daemon=True).start()
async def main():
    running = asyncio.run_coroutine_threadsafe(sums(), other)
    for _ in range(20): await asyncio.sleep(0.001)
    print('warm', flush=True)
    await asyncio.sleep(0.5)
    child = os.fork()
    if child == 0:
        try: asyncio.get_running_loop()
        except RuntimeError: os._exit(7)
        os._exit(8)
    print(await sums(), await asyncio.wrap_future(running), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asyncio.get_running_loop() is asyncio.get_event_loop())
asyncio.run(main())
";

#[test]
fn loops_of_pythons_asyncio_that_run_go_on() {
	let place = Place::new();
	let script = place.file("loops.py", LOOPS);
	let script = script.as_str();
	let plain = Command::new(PYTHON).arg(script).stdin(Stdio::null()).output().unwrap();
	let said = stdout(&plain).strip_prefix("warm\n").unwrap_or_default();
	assert!(!said.is_empty(), "{}", stderr(&plain));
	warm(&place, "line:^warm$", &[PYTHON, script]);
	for clone in place.clones(0, 3, &[]) {
		assert_eq!(both(&clone), (said, stderr(&plain)));
	}
}
