//! The AWS SDK for JavaScript, unmodified, in front of functions in Python.

use crate::common::{PYTHON, Server, checkout, until};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

const FUNCTIONS: &str = "
import json

def run(event, context):
	print('said', event)
	return {'got': event, 'id': context.aws_request_id}

def bad(event, context):
	raise KeyError('k')
";

/// Prints the id of an event.
const PROGRAM: &str = r#"
const { LambdaClient, CreateFunctionCommand, DeleteFunctionCommand, InvokeCommand, ListFunctionsCommand,
	waitUntilFunctionActiveV2 } = require("@aws-sdk/client-lambda");
const assert = require("assert").strict;
const [endpoint, zip] = process.argv.slice(1);
const client = new LambdaClient({ endpoint, maxAttempts: 1 });

async function main() {
	const ZipFile = require("fs").readFileSync(zip);
	for (const name of ["run", "bad"]) {
		const made = await client.send(new CreateFunctionCommand({ FunctionName: name, Runtime: "python3.12", Handler: "app." + name,
			Role: "arn:aws:iam::000000000000:role/x", Code: { ZipFile }, Timeout: 20 }));
		assert.equal(made.Handler, "app." + name);
		const active = await waitUntilFunctionActiveV2({ client, maxWaitTime: 60 }, { FunctionName: name });
		assert.equal(active.state, "SUCCESS");
	}
	const text = (answer) => JSON.parse(answer.Payload.transformToString());
	const call = { FunctionName: "run", Payload: JSON.stringify({ a: ["ä", 1] }), LogType: "Tail" };
	// At the same time: each has the answer to its own.
	const calls = [0, 1, 2, 3].map((n) => client.send(new InvokeCommand({ ...call, Payload: JSON.stringify({ n }) })));
	for (const [n, answer] of (await Promise.all(calls)).entries()) {
		assert.deepEqual(text(answer), { got: { n }, id: answer.$metadata.requestId });
	}
	const answer = await client.send(new InvokeCommand(call));
	assert.deepEqual([answer.StatusCode, answer.FunctionError, answer.ExecutedVersion], [200, undefined, "$LATEST"]);
	assert.deepEqual(text(answer).got, { a: ["ä", 1] });
	assert.match(Buffer.from(answer.LogResult, "base64").toString(), /^START [^]*said \{'a': \['ä', 1\]\}\n/);
	const failed = await client.send(new InvokeCommand({ FunctionName: "bad" }));
	assert.deepEqual([failed.FunctionError, text(failed).errorType], ["Unhandled", "KeyError"]);
	const event = await client.send(new InvokeCommand({ ...call, InvocationType: "Event" }));
	assert.equal(event.StatusCode, 202);
	const listed = await client.send(new ListFunctionsCommand({}));
	assert.deepEqual(listed.Functions.map((one) => one.FunctionName), ["bad", "run"]);
	await client.send(new DeleteFunctionCommand({ FunctionName: "bad" }));
	await assert.rejects(client.send(new InvokeCommand({ FunctionName: "bad" })), { name: "ResourceNotFoundException" });
	const wrong = client.send(new InvokeCommand({ FunctionName: "run", Payload: "{" }));
	await assert.rejects(wrong, { name: "InvalidRequestContentException" });
	console.log(event.$metadata.requestId);
}

main();
"#;

#[test]
fn the_sdk_for_javascript_is_served() {
	let server = Server::start("javascript", &[]);
	let place = tempfile::tempdir().unwrap();
	let [code, package] = ["app.py", "app.zip"].map(|name| place.path().join(name));
	std::fs::write(&code, FUNCTIONS).unwrap();
	let packed = Command::new(&*PYTHON).args(["-m", "zipfile", "-c"]).args([&package, &code]).status().unwrap();
	assert!(packed.success());
	let mut make = Command::new(checkout().join("scripts/node-libraries"));
	let made = make.stderr(Stdio::inherit()).output().unwrap();
	assert!(made.status.success(), "the SDK is not there: scripts/node-libraries");
	let modules = checkout().join(String::from_utf8(made.stdout).unwrap().trim());
	let mut node = Command::new("node");
	node.args(["-e", PROGRAM, &format!("http://{}", server.address)]).arg(&package).env("NODE_PATH", modules);
	node.envs([("AWS_REGION", "local"), ("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", "any")]);
	let done = node.output().unwrap();
	assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
	let id = String::from_utf8(done.stdout).unwrap().trim().to_owned();
	let result = || -> Value {
		let done = server.command(&["invoke", "run", "--result", &id]);
		serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
	};
	until("no result", || result()["Status"] != "Pending");
	let payload = result()["Payload"].as_str().map(|text| serde_json::from_str::<Value>(text).unwrap());
	assert_eq!(payload.unwrap(), json!({ "got": { "a": ["ä", 1] }, "id": id }));
}
