//! Requests with a signature, as SDKs sign them, and as somebody else might change them.

use crate::common::{ONE, Server};

#[test]
fn a_request_is_its_signers_unchanged() {
	let (server, _) = Server::with_keys("signed", &[], |_| ());
	assert!(server.deploy_as(Some(ONE), "f", &["--timeout", "20"]).status.success());
	let sign = r#"
import datetime, hashlib, socket, uuid
import botocore.auth
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
host = client.meta.endpoint_url.split("/")[-1]
PATH = "/2015-03-31/functions/f/invocations"

def without(*names):
	class Auth(SigV4Auth):
		def headers_to_sign(self, request):
			all = super().headers_to_sign(request)
			for name in names:
				del all[name]
			return all
	return Auth

def request(path=PATH, body=b"{}", auth=SigV4Auth, key=("ONE", "secret-of-the-first-owner"), service="lambda", **headers):
	headers = {name.replace("_", "-"): value for name, value in headers.items()}
	made = AWSRequest("POST", "http://" + host + path, data=body, headers={"amz-sdk-invocation-id": str(uuid.uuid4()), **headers})
	auth(Credentials(*key), service, "local").add_auth(made)
	return [["Host", host]] + [[name, value] for name, value in made.headers.items() if name.lower() != "host"]

def send(text):
	connection = socket.create_connection(host.split(":"))
	try:
		connection.sendall(text)
	except OSError:
		pass  # It may be told before all of it is sent.
	answer = b""
	try:
		while part := connection.recv(65536):
			answer += part
	except ConnectionResetError:
		pass
	return answer

def text(lines, path=PATH, body=b"{}"):
	head = "".join(f"{name}: {value}\r\n" for name, value in lines)
	return f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body

def ask(lines, **how):
	"""The status, or the error's name."""
	head = send(text(lines, **how)).decode().split("\r\n\r\n")[0].lower()
	kinds = [line.split(": ")[1] for line in head.split("\r\n") if line.startswith("x-amzn-errortype")]
	return kinds[0].removesuffix("exception") if kinds else int(head.split()[1])

def edited(change, lines=None):
	lines = lines or request()
	lines = [[name, change(value) if name == "Authorization" else value] for name, value in lines]
	return lines
"#;
	let program = format!(
		r#"{sign}
wrong = "invalidsignature"
assert ask(request()) == 200
# What was signed is all of it.
assert ask(request(), body=b"[]") == wrong
assert ask(request(), path=PATH + "?a") == wrong
assert ask(request(), path=PATH.replace("/f/", "/g/")) == wrong
assert ask(request(), path=PATH.replace("/f/", "/%66/")) == wrong
assert ask(request() + [["X-Amz-Invocation-Type", "Event"]]) == wrong
assert ask(request(X_Amz_Invocation_Type="DryRun")) == 204
assert ask([[n, "DryRun" if n == "X-Amz-Log-Type" else v] for n, v in request(X_Amz_Log_Type="None")]) == wrong
assert ask([[n, v] for n, v in request(a="b") if n != "a"]) == wrong
assert ask(request(auth=without("host"))) == wrong
assert ask(request(auth=without("x-amz-date"))) == wrong
assert ask(request(auth=without("X-Amz-Log-Type"), X_Amz_Log_Type="None")) == wrong
assert ask(request(auth=without("amz-sdk-invocation-id"), X_Amz_Log_Type="None")) == 200
# The body.
digest = hashlib.sha256(b"{{}}").hexdigest()
assert ask(request(X_Amz_Content_SHA256=digest)) == 200
assert ask(request(X_Amz_Content_SHA256=hashlib.sha256(b"[]").hexdigest())) == wrong
assert ask(request(X_Amz_Content_SHA256=hashlib.sha256(b"[]").hexdigest()), body=b"[]") == 200
for unsigned in ("UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"):
	assert ask(request(X_Amz_Content_SHA256=unsigned)) == wrong
# Encodings: queries in another order are the same one, paths are not tidied.
query = PATH + "?b=%C3%BC%20%2F&a&b=%7E"
assert ask(request(PATH + "?a=&b=%C3%BC%20%2F&b=~"), path=query) == 200
assert ask(request(PATH + "?a=&b=%C3%BC%20%2F&b=x"), path=query) == wrong
arn = PATH.replace("/f/", "/arn%3Aaws%3Alambda%3Alocal%3Aone%3Afunction%3Af/")
assert ask(request(arn), path=arn) == 200
dots = "/2015-03-31/functions/g/../f/invocations"
assert ask(request(dots), path=dots) == wrong
# Headers.
assert ask(request(a="  b \t  c  ")) == 200
assert ask([[n, "b\r\n c" if n == "a" else v] for n, v in request(a="b c")]) == 400
for name in ("X-Amz-Date", "Authorization", "amz-sdk-invocation-id", "Host"):
	lines = request()
	lines += [line for line in lines if line[0] == name]
	assert ask(lines) in (wrong, 400), name
assert ask(request() + [["a", "1"], ["a", "2"]]) == 200
both = without()
both.canonical_headers = lambda self, headers: SigV4Auth.canonical_headers(self, headers).replace("a:1", "a:1,2")
assert ask(request(auth=both, a="1") + [["a", "2"]]) == wrong
# The signature itself.
assert ask([line for line in request() if line[0] != "Authorization"]) == "missingauthenticationtoken"
for change in (
	lambda a: a[:-1] + ("0" if a[-1] != "0" else "1"), lambda a: a[:-1], lambda a: a[:-64] + "\u017f" * 32, lambda a: a.split(", Signature=")[0],
	lambda a: a + ", " + a.split(", ")[-1], lambda a: a.replace("HMAC-SHA256", "ECDSA-P256-SHA256"), lambda a: "Basic b25lOnR3bw==",
	lambda a: a.replace("/aws4_request", ""), lambda a: a.replace(" Credential", "  Credential=A/, Credential"),
	lambda a: a.replace("host;x-amz-date", "x-amz-date;host"), lambda a: a.replace("host;", "host;host;"), lambda a: "",
	lambda a: a + " " * 5000 + ".", lambda a: a.replace("=amz", "=" + "a;" * 3000 + "amz"),
):
	assert ask(edited(change)) == wrong, change("AWS4-HMAC-SHA256 Credential, SignedHeaders, Signature=")
assert ask(edited(lambda a: a + "x" * (1 << 20))) in (400, 431)
assert ask(request(service="s3")) == wrong
assert ask(request(key=("ONE", "secret-of-the-second-owner"))) == wrong
assert ask(request(key=("NONE", "secret-of-the-first-owner"))) == "unrecognizedclient"
made = AWSRequest("POST", "http://" + host + PATH, data=b"{{}}")
SigV4QueryAuth(Credentials("ONE", "secret-of-the-first-owner"), "lambda", "local").add_auth(made)
assert ask([["Host", host]], path=made.url.split(host)[1]) == "missingauthenticationtoken"
# Its date.
now = botocore.auth.get_current_datetime
for minutes, then in ((14, 200), (16, wrong), (-16, wrong), (60 * 24, wrong)):
	botocore.auth.get_current_datetime = lambda *a, **k: now(*a, **k) + datetime.timedelta(minutes=minutes)
	assert ask(request()) == then, minutes
botocore.auth.get_current_datetime = now
"#
	);
	server.boto_as(ONE, "None", &program);
}
