//! Who may ask for what.

use crate::common::{PYTHON, SERVE, Server};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const KEYS: &str = "# two owners\nAKIDONE secret-of-the-first-one one\nAKIDTWO secret-of-the-second-one two\n";

fn keys(folder: &tempfile::TempDir, mode: u32) -> String {
    let path = folder.path().join("keys");
    std::fs::write(&path, KEYS).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Whether the first owner's function f can be deployed with that secret.
fn deploys(server: &Server, secret: &str) -> bool {
    let code = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handlers");
    let mut command = Command::new(SERVE);
    command.args(["deploy", code, "--name", "f", "--handler", "handlers.handler", "--timeout", "20"]);
    command.args(["--endpoint", &server.address, "--key", "AKIDONE"]).env("AWS_SECRET_ACCESS_KEY", secret);
    command.output().unwrap().status.success()
}

#[test]
fn owners_have_keys_and_see_their_own_functions_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("keys", &["--keys", &keys(&folder, 0o600)]);
    assert!(!deploys(&server, "secret-of-the-second-one"));
    assert!(deploys(&server, "secret-of-the-first-one"));
    let first = ("AKIDONE", "secret-of-the-first-one");
    server.boto(
        first,
        "assert json.load(client.invoke(FunctionName='f', Payload='{\"ü\": 1}')['Payload']) == {'ü': 1}\n",
    );
    server.boto(
        ("AKIDTWO", "secret-of-the-second-one"),
        "assert client.list_functions()['Functions'] == []
try:
    client.invoke(FunctionName='arn:aws:lambda:local:one:function:f')
    raise SystemExit('the function of another owner')
except client.exceptions.ResourceNotFoundException:
    pass
",
    );
    for wrong in [("AKIDONE", "secret-of-somebody-else"), ("AKIDTHREE", "secret-of-the-first-one")] {
        server.boto(
            wrong,
            "
try:
    client.invoke(FunctionName='f')
    raise SystemExit('a wrong key')
except botocore.exceptions.ClientError as e:
    assert e.response['Error']['Code'] == 'AccessDeniedException', e
",
        );
    }
    let (status, _, _) = server.ask("GET", "/2015-03-31/functions", "", b"");
    assert_eq!(status, 403);
}

#[test]
fn a_signed_request_can_not_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("signed", &["--keys", &keys(&folder, 0o600)]);
    assert!(deploys(&server, "secret-of-the-first-one"));
    server.boto(
        ("AKIDONE", "secret-of-the-first-one"),
        r#"
import http.client
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
host = client.meta.endpoint_url.split("/")[-1]
path = "/2015-03-31/functions/f/invocations"
def ask(change=lambda request: None, body=b"{}", send=b"{}", path=path, to=path):
    request = AWSRequest("POST", "http://" + host + path, data=body)
    SigV4Auth(Credentials("AKIDONE", "secret-of-the-first-one"), "lambda", "local").add_auth(request)
    change(request)
    connection = http.client.HTTPConnection(host)
    connection.request("POST", to, send, dict(request.headers))
    return connection.getresponse().status
assert ask() == 200
assert ask(send=b"[]") == 403
assert ask(to=path + "?a") == 403
assert ask(to="/2015-03-31/functions/g/invocations") == 403
assert ask(lambda r: r.headers.add_header("X-Amz-Invocation-Type", "Event")) == 403
assert ask(lambda r: r.headers.replace_header("X-Amz-Date", "20200101T000000Z")) == 403
assert ask(lambda r: r.headers.replace_header("Authorization", r.headers["Authorization"][:-1])) == 403
assert ask(lambda r: r.headers.replace_header("Authorization", r.headers["Authorization"].split("Signature=")[0])) == 403
"#,
    );
}

#[test]
fn without_keys_only_this_machine_is_served() {
    let refused = |options: &[&str]| {
        let done = Command::new(SERVE).args(["serve", "--python", &PYTHON]).args(options).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    assert!(refused(&["--listen", "0.0.0.0:0"]).contains("give --keys"));
    let folder = tempfile::tempdir().unwrap();
    assert!(refused(&["--keys", &keys(&folder, 0o644)]).contains("others may read it"));
}
