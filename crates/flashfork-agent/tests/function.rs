//! What serves a function's runtime, as a process of the host: the test is server and runtime.

mod host;

use std::{
	fs,
	io::{BufRead, BufReader, Read, Write},
	net::{Shutdown, TcpStream},
	os::unix::fs::PermissionsExt,
	process::{Command, Stdio},
};

use flashfork_proto::{
	agent::Exit,
	frame,
	function::{BOOTSTRAP, MAX_FRAME, NEXT, Said},
};
use host::{PATIENCE, wait_until};

/// Prints what it is told to by files, and ends.
const RUNTIME: &str = "#!/bin/sh
echo begins
echo $AWS_LAMBDA_RUNTIME_API >api.new; mv api.new api
until [ -e say ]; do sleep 0.01; done
echo said >&2; >has-said
until [ -e end ]; do sleep 0.01; done
exit 3
";

fn connect(place: &str) -> TcpStream {
	let stream = TcpStream::connect(place).unwrap();
	stream.set_read_timeout(Some(PATIENCE)).unwrap();
	stream
}

/// What comes next, in all so many bytes.
fn read(stream: &mut TcpStream, count: usize) -> String {
	let mut bytes = vec![0; count];
	stream.read_exact(&mut bytes).unwrap();
	String::from_utf8(bytes).unwrap()
}

#[test]
fn a_runtime_is_frozen_at_its_first_request_and_connected_later() {
	let root = tempfile::tempdir().unwrap();
	let file = |name: &str| root.path().join(name);
	let mut helper = Command::new(env!("CARGO_BIN_EXE_flashfork-agent"));
	helper.arg("function").arg(root.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
	let without = helper.output().unwrap();
	assert!(
		String::from_utf8_lossy(&without.stderr).contains("bootstrap can't be started: No such file"),
		"{without:?}"
	);
	fs::write(file(BOOTSTRAP), RUNTIME).unwrap();
	fs::set_permissions(file(BOOTSTRAP), PermissionsExt::from_mode(0o755)).unwrap();
	let mut helper = helper.spawn().unwrap();
	let mut line = String::new();
	BufReader::new(helper.stdout.take().unwrap()).read_line(&mut line).unwrap();
	let [messages, streams] = [0, 1].map(|i| format!("127.0.0.1:{}", line.split_whitespace().nth(i).unwrap()));
	let hear = |control: &mut TcpStream| frame::read::<Said>(control, MAX_FRAME).unwrap();
	let printed = |text: &str| Some(Said::Printed(text.as_bytes().to_vec().into()));

	wait_until(|| file("api").exists());
	let api = fs::read_to_string(file("api")).unwrap();
	// Whole, though it comes in parts; one that says nothing isn't waited for.
	let _silent = connect(api.trim());
	let mut one = connect(api.trim());
	let request = format!("{} HTTP/1.1\r\n\r\n", str::from_utf8(NEXT).unwrap());
	one.set_nodelay(true).unwrap();
	one.write_all(&request.as_bytes()[..20]).unwrap();
	let mut control = connect(&messages);
	assert_eq!(hear(&mut control), printed("begins\n"));
	one.write_all(&request.as_bytes()[20..]).unwrap();
	let asks = Some(Said::Asks(request.trim().as_bytes().to_vec().into()));
	assert_eq!(hear(&mut control), asks);
	assert_eq!(hear(&mut control), None);

	// As in a clone: the connection of before is gone.
	let mut control = connect(&messages);
	assert_eq!(hear(&mut control), asks);
	let mut stream = connect(&streams);
	assert_eq!(read(&mut stream, request.len()), request);
	stream.write_all(b"answer").unwrap();
	assert_eq!(read(&mut one, 6), "answer");
	one.write_all(b"x").unwrap();
	assert_eq!(read(&mut stream, 1), "x");
	// Another connection, which ends on one side before the other.
	let mut two = connect(api.trim());
	two.write_all(request.as_bytes()).unwrap();
	two.shutdown(Shutdown::Write).unwrap();
	assert_eq!(hear(&mut control), asks);
	let (mut stream, mut asked, mut answered) = (connect(&streams), String::new(), String::new());
	stream.read_to_string(&mut asked).unwrap();
	assert_eq!(asked, request);
	stream.write_all(b"late").unwrap();
	drop(stream);
	two.read_to_string(&mut answered).unwrap();
	assert_eq!(answered, "late");

	// All that was printed before is told before that is said.
	fs::write(file("say"), "").unwrap();
	wait_until(|| file("has-said").exists());
	control.write_all(b"f").unwrap();
	assert_eq!(hear(&mut control), printed("said\n"));
	assert_eq!(hear(&mut control), Some(Said::Flushed));
	fs::write(file("end"), "").unwrap();
	assert_eq!(hear(&mut control), Some(Said::Ended(Exit::Code(3))));
	wait_until(|| TcpStream::connect(api.trim()).is_err());
	helper.kill().unwrap();
	helper.wait().unwrap();
}
