//! Compiled programs that bring threads of their libraries' along: Rust with tokio, C++ with tcmalloc.

use crate::{
	listen::free,
	place::{Place, both, good, stderr, stdout, target},
};
use std::{
	collections::BTreeSet,
	io::{BufRead, BufReader, Write},
	net::TcpStream,
	path::PathBuf,
	process::{Child, Command, Stdio},
};

fn example(name: &str) -> PathBuf {
	let mut build = Command::new(env!("CARGO"));
	build.args(["build", "--locked", "-p", "flashfork-cli", "--example", name, "--target-dir"]).arg(target());
	assert!(build.status().unwrap().success());
	target().join("debug/examples").join(name)
}

fn ask(port: u16, line: &str) -> (String, TcpStream) {
	let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
	writeln!(stream, "{line}").unwrap();
	let mut answer = String::new();
	BufReader::new(&stream).read_line(&mut answer).unwrap();
	(answer, stream)
}

const SUM: u64 = 999 * 1000 / 2 + 63 * 64 * 127 / 6;

/// Several share the socket, on which the kernel wakes all their event loops; each ends as the program does, with
/// all its threads waited for.
#[test]
fn a_server_of_tokio_answers_in_clones_that_share_its_socket_and_ends_in_order() {
	let (place, server, port) = (Place::new(), example("tokio_server"), free());
	let ready = format!("listen:{port}");
	let server = [server.to_str().unwrap(), &port.to_string()];
	good(place.run(&[&["warm", "--threads", "--ready", &ready, "t", "--"], &server[..]].concat()));
	for together in [1, 4] {
		let clone = |_| place.flashfork(&["clone", "t"]).stderr(Stdio::piped()).spawn().unwrap();
		let clones: Vec<Child> = (0..together).map(clone).collect();
		for _ in 0..8 {
			let (answer, _) = ask(port, "ask");
			assert!(answer.starts_with(&format!("{SUM} ")), "{answer}");
		}
		// One after the other accepts no more, so that each comes to its turn.
		let last: Vec<_> = (0..together).map(|_| ask(port, "last")).collect();
		let numbers: BTreeSet<&str> = last.iter().filter_map(|(answer, _)| answer.trim().split(' ').nth(1)).collect();
		assert_eq!(numbers.len(), together, "{last:?}");
		drop(last);
		for clone in clones {
			let clone = clone.wait_with_output().unwrap();
			assert_eq!((clone.status.code(), stderr(&clone)), (Some(0), ""));
		}
	}
	place.remove();
	place.until_empty();
}

/// Allocates in four threads, and frees in others; each looks whether what it was handed is what the other wrote.
const TCMALLOC: &str = r#"
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
extern "C" int flashfork_ready(int *, char ***) __attribute__((weak));
extern "C" int MallocExtension_VerifyAllMemory() __attribute__((weak));
enum { THREADS = 4 };
struct Piece { std::vector<char> bytes; char mark; };
static std::mutex m[THREADS]; static std::condition_variable come[THREADS];
static std::deque<std::unique_ptr<Piece>> waiting[THREADS];
static std::atomic<long> done[THREADS]; static std::atomic<bool> stop{false};
static thread_local std::string own;
static void work(int i) {
	unsigned long s = i + 1; own = std::string(1000 * (i + 1), 'a' + i);
	for (;;) {
		std::vector<std::unique_ptr<Piece>> kept;
		for (int k = 0; k < 8; k++) {
			s = s * 6364136223846793005ul + 1442695040888963407ul;
			auto piece = std::make_unique<Piece>(); piece->mark = s >> 56; piece->bytes.assign(s >> 44 & 0x3ffff, piece->mark);
			kept.push_back(std::move(piece));
		}
		int to = (i + 1) % THREADS;
		{ std::lock_guard l(m[to]); for (auto &piece : kept) waiting[to].push_back(std::move(piece)); }
		come[to].notify_one();
		std::deque<std::unique_ptr<Piece>> got;
		{
			std::unique_lock l(m[i]); come[i].wait(l, [&] { return stop || !waiting[i].empty(); });
			got.swap(waiting[i]);
		}
		for (auto &piece : got) for (char c : piece->bytes) if (c != piece->mark) throw std::logic_error("another's bytes");
		if (own.find_first_not_of('a' + i) != std::string::npos) throw std::logic_error("another's string");
		done[i]++;
		if (stop) return;
	}
}
int main() {
	std::vector<std::thread> all; for (int i = 0; i < THREADS; i++) all.emplace_back(work, i);
	for (auto &one : done) while (one < 20) usleep(1000);
	if (flashfork_ready) flashfork_ready(0, 0);
	for (auto &one : done) { long before = one; while (one < before + 20) usleep(1000); }
	// New threads have caches of their own.
	std::thread([] { for (int i = 0; i < 1000; i++) own.assign(i * 100, 'x'); }).join();
	stop = true; for (auto &one : come) one.notify_all();
	for (auto &one : all) one.join();
	try { throw std::runtime_error("all moved"); } catch (std::exception &e) { printf("%s %d\n", e.what(), MallocExtension_VerifyAllMemory ? MallocExtension_VerifyAllMemory() : -1); }
}
"#;

#[test]
fn clones_of_a_program_with_tcmalloc_allocate_and_free_in_all_threads() {
	let place = Place::new();
	let (source, program) = (place.at("program.cc"), place.at("program"));
	std::fs::write(&source, TCMALLOC).unwrap();
	let mut compile = Command::new("c++");
	compile.args(["-std=c++17", "-O1", "-pthread", "-o"]).arg(&program).arg(&source);
	assert!(compile.arg("-Wl,--no-as-needed,-l:libtcmalloc_minimal.so.4").status().unwrap().success());
	let program = program.to_str().unwrap();
	let plain = Command::new(program).output().unwrap();
	assert_eq!(both(&plain), ("all moved 1\n", ""));
	for _ in 0..3 {
		good(place.run(&["warm", "--threads", "--ready", "call", "t", "--", program]));
		for clone in place.clones(2, 4, &[]) {
			assert_eq!((stdout(&clone), stderr(&clone), clone.status.code()), ("all moved 1\n", "", Some(0)));
		}
		place.remove();
	}
}
