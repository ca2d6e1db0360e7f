//! Who may ask for what, and where keys are safe.

use crate::common::{CALLER, DEPLOYER, Key, ONE, PYTHON, READER, SERVE, Server, TWO, until};
use serde_json::{Value, json};
use std::{
	fs,
	os::unix::{fs::PermissionsExt, process::CommandExt},
	path::Path,
	process::{Command, Output},
};

/// What a function answers to somebody's call.
fn call(server: &Server, key: Key, options: &[&str], event: &Value) -> Value {
	let done = server.command_as(Some(key), &[&["invoke", "f", &event.to_string()], options].concat());
	assert!(done.status.success(), "{done:?}");
	serde_json::from_slice(&done.stdout).unwrap()
}

fn said(done: &Output) -> String {
	String::from_utf8([&done.stdout[..], &done.stderr].concat()).unwrap()
}

#[test]
fn owners_have_their_own_functions_only() {
	let (mut server, _) = Server::with_keys("owners", &[], |_| ());
	for key in [ONE, TWO] {
		assert!(!server.command_as(Some(key), &["logs", "f"]).status.success());
		let done = server.deploy_as(Some(key), "f", &["--timeout", "20", "--env", &format!("PLAIN={}", key.0)]);
		assert!(done.status.success(), "{done:?}");
	}
	let born = |server: &Server, key| call(server, key, &[], &json!({ "do": "born" }));
	let [one, two] = [ONE, TWO].map(|key| born(&server, key));
	assert_eq!((&one, &one[1], &two[1]), (&born(&server, ONE), &json!("ONE"), &json!("TWO")));
	assert_ne!(one[0], two[0], "one template for two owners");
	let event = server.command_as(Some(ONE), &["invoke", "f", "--event"]);
	let id = String::from_utf8(event.stdout).unwrap().trim().to_owned();
	let result = |key| server.command_as(Some(key), &["invoke", "f", "--result", &id]);
	until("no result", || said(&result(ONE)).contains("Succeeded"));
	assert!(said(&result(TWO)).contains("no such event"));
	server.boto_as(
		TWO,
		"None",
		"\
other = dict(FunctionName='arn:aws:lambda:local:one:function:f')
for what in client.invoke, client.get_function, client.delete_function:
    refused(lambda: what(**other), 'ResourceNotFoundException')
refused(lambda: client.create_function(Runtime='python3.12', Role='arn:aws:iam::000000000000:role/x', Handler='a.b', Code={'ZipFile': b''}, **other), 'AccessDeniedException')
assert json.load(client.invoke(FunctionName=other['FunctionName'].replace('one', 'two'), Payload='{\"ü\": 1}')['Payload']) == {'ü': 1}
assert [f['FunctionArn'] for f in client.list_functions()['Functions']] == ['arn:aws:lambda:local:two:function:f']
client.delete_function(FunctionName='f')
assert client.list_functions()['Functions'] == []
",
	);
	assert!(said(&server.command_as(Some(TWO), &["invoke", "f"])).contains("Function not found"));
	assert!(said(&server.command_as(Some(ONE), &["logs", "f"])).contains("START RequestId"));
	assert_eq!(born(&server, ONE), one);
	server.kill_and_start_again();
	assert_eq!(born(&server, ONE)[1], "ONE");
	assert!(said(&server.command_as(Some(TWO), &["functions"])).is_empty());
}

/// A package that is refused, by its server alone.
const BAD: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/bad.zip");

#[test]
fn a_key_does_what_it_may() {
	fs::write(BAD, "PK").unwrap();
	let (server, _) = Server::with_keys("rights", &[], |_| ());
	assert!(server.deploy_as(Some(DEPLOYER), "f", &["--timeout", "20"]).status.success());
	for (key, may) in [(DEPLOYER, "deploy"), (CALLER, "invoke"), (READER, "read")] {
		for (command, right) in [
			(&["deploy", BAD, "--name", "g"][..], "deploy"),
			(&["undeploy", "g"], "deploy"),
			(&["invoke", "f"], "invoke"),
			(&["invoke", "f", "--event"], "invoke"),
			(&["logs", "f"], "read"),
			(&["functions"], "read"),
			(&["invoke", "f", "--result", "0"], "read"),
		] {
			let done = said(&server.command_as(Some(key), command));
			assert_eq!(done.contains("the key may not do that"), may != right, "{key:?} {command:?}: {done}");
		}
	}
	assert!(said(&server.command(&["functions"])).contains("signed with one of its keys"));
	assert!(said(&server.command_as(Some(("ONE", TWO.1)), &["functions"])).contains("the signature is wrong"));
}

#[test]
fn keys_are_taken_from_a_file_that_functions_can_not_read() {
	let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keys-files");
	let _ = fs::remove_dir_all(&place);
	fs::create_dir_all(&place).unwrap();
	let is_root = rustix::process::geteuid().is_root();
	let keys = place.join("keys");
	fs::write(&keys, "A = { secret = 'twenty characters, it has', owner = 'a', may = [] }").unwrap();
	let starts = |user: Option<u32>, keys: &Path, mode| {
		fs::set_permissions(keys, PermissionsExt::from_mode(mode)).unwrap();
		let mut serve = Command::new(SERVE);
		// Those that are taken fail later.
		serve.args(["serve", "--listen", "192.0.2.1:0", "--tls-certificate", "/dev/null", "--tls-key", "/dev/null"]);
		serve.args(["--python", &PYTHON, "--state"]).arg(place.join("state")).arg("--keys").arg(keys);
		if let Some(user) = user {
			std::os::unix::fs::chown(&place, Some(user), None).unwrap();
			serve.uid(user).gid(user);
		}
		let done = serve.output().unwrap();
		assert_eq!(done.status.code(), Some(1), "{done:?}");
		said(&done)
	};
	for mode in [0o644, 0o640, 0o604, 0o620] {
		assert!(starts(None, &keys, mode).contains("(chmod 600)"), "{mode:o}");
	}
	if is_root {
		assert!(starts(None, &keys, 0o600).contains("/dev/null may be read by others"));
		std::os::unix::fs::chown(&keys, Some(65534), None).unwrap();
		assert!(starts(None, &keys, 0o600).contains("(chown 0)"));
	}
	let user = is_root.then_some(65534);
	assert!(starts(user, &keys, 0o600).contains("may be read by functions: move it to"));
	let inside = place.join("state/keys");
	fs::create_dir(place.join("state")).unwrap();
	std::os::unix::fs::chown(place.join("state"), user, user).unwrap();
	fs::rename(&keys, &inside).unwrap();
	assert!(starts(user, &inside, 0o600).contains("/dev/null may be read by others"));
	fs::hard_link(&inside, &keys).unwrap();
	assert!(starts(user, &inside, 0o600).contains("may be read by functions"));
}

#[test]
fn no_key_is_within_reach_of_a_function() {
	let (server, closed) = Server::with_keys("reach", &[], |_| ());
	let done = server.deploy_as(Some(ONE), "f", &["--timeout", "100", "--env", "CANARY=canary-in-memory"]);
	assert!(done.status.success(), "{done:?}");
	let places = [&closed.join("keys"), &closed, &server.state].map(|place| place.canonicalize().unwrap());
	let event = json!({ "do": "hunt", "places": places, "server": server.process.id(), "address": server.address });
	let found = call(&server, ONE, &[], &event);
	// It finds what is there to be found.
	assert_eq!(
		found,
		json!({ "canary": ["environment", "memory"], "keys": [], "read": [], "reached": [], "asked": [403, 403, 403] })
	);
}

/// Makes certificates with openssl: one that signs, the server's and a client's.
fn certificates(place: &Path) {
	let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/need-packages");
	assert!(Command::new(script).arg("openssl").status().unwrap().success());
	let make = "printf '[req]\\ndistinguished_name = dn\\n[dn]\\n' > conf
make() { name=$1; shift; openssl req -config conf -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=$name -keyout $name.key -out $name.pem \"$@\"; }
make ca -addext basicConstraints=critical,CA:TRUE
make server -CA ca.pem -CAkey ca.key -addext subjectAltName=IP:127.0.0.1
make client -CA ca.pem -CAkey ca.key -addext subjectAltName=DNS:client
make other -addext basicConstraints=critical,CA:TRUE";
	let done = Command::new("sh").args(["-ec", make]).current_dir(place).output().unwrap();
	assert!(done.status.success(), "{done:?}");
}

const TLS: [&str; 4] = ["--tls-certificate", "@server.pem", "--tls-key", "@server.key"];

#[test]
fn other_machines_are_served_with_keys_and_tls_only() {
	for options in [&[][..], &["--keys", "/dev/null"], &TLS] {
		let done = Command::new(SERVE).args(["serve", "--listen", "0.0.0.0:0"]).args(options).output().unwrap();
		let why = said(&done);
		assert!(done.status.code() == Some(1) && why.lines().count() == 1, "{why}");
		assert!(why.contains("is no loopback address: give --keys, --tls-certificate and --tls-key"), "{why}");
	}
	let (server, closed) = Server::with_keys("tls", &[&["--listen", "0.0.0.0:0"], &TLS[..]].concat(), certificates);
	let ca = closed.join("ca.pem").to_str().unwrap().to_owned();
	let done = server.deploy_as(Some(ONE), "f", &["--timeout", "20", "--ca", &ca]);
	assert!(done.status.success(), "{done:?}");
	assert_eq!(call(&server, ONE, &["--ca", &ca], &json!({ "a": 1 })), json!({ "a": 1 }));
	let other = closed.join("other.pem").to_str().unwrap().to_owned();
	assert!(said(&server.command_as(Some(ONE), &["functions", "--ca", &other])).contains("certificate"));
	server.boto_as(
		ONE,
		&format!("'{ca}'"),
		&format!(
			"assert json.load(client.invoke(FunctionName='f', Payload='[2]' and '{{\"a\": 2}}')['Payload']) == {{'a': 2}}
try:
    to('ONE', '{}', '{other}').list_functions()
    raise SystemExit('a certificate of nobody')
except botocore.exceptions.SSLError:
    pass
",
			ONE.1
		),
	);
	// In plain text it says nothing.
	let mut stream = server.connect();
	std::io::Write::write_all(&mut stream, b"GET /2015-03-31/functions HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
	let mut all = Vec::new();
	let _ = std::io::Read::read_to_end(&mut stream, &mut all);
	assert!(!all.starts_with(b"HTTP"), "{all:?}");
}

#[test]
fn clients_have_certificates_where_these_are_demanded() {
	let options = [&TLS[..], &["--client-ca", "@ca.pem"]].concat();
	let (server, closed) = Server::with_keys("mtls", &options, certificates);
	let path = |file: &str| closed.join(file).to_str().unwrap().to_owned();
	let [ca, client, key, other, other_key] =
		["ca.pem", "client.pem", "client.key", "other.pem", "other.key"].map(path);
	let own = ["--ca", &ca, "--certificate", &client, "--certificate-key", &key];
	let done = server.deploy_as(Some(ONE), "f", &[&["--timeout", "20"], &own[..]].concat());
	assert!(done.status.success(), "{done:?}");
	let done = server.command_as(Some(ONE), &["functions", "--ca", &ca]);
	assert!(!done.status.success() && said(&done).contains("--certificate-key are yours"), "{done:?}");
	assert!(
		said(&server.command_as(None, &[&["functions"], &own[..]].concat())).contains("signed with one of its keys")
	);
	server.boto_as(
		ONE,
		&format!("'{ca}'"),
		&format!(
			"good = to('ONE', '{secret}', client_cert=('{client}', '{key}'))
assert json.load(good.invoke(FunctionName='f', Payload='{{\"a\": 3}}')['Payload']) == {{'a': 3}}
for bad in client, to('ONE', '{secret}', client_cert=('{other}', '{other_key}')):
    try:
        bad.list_functions()
        raise SystemExit('a client without a certificate')
    except (botocore.exceptions.SSLError, botocore.exceptions.HTTPClientError):
        pass
",
			secret = ONE.1
		),
	);
}
