//! Who may ask: keys, by which requests are signed as AWS's SDKs sign them, and what each key may.
//!
//! [Signature Version 4](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html).

use crate::{
	error::{ApiError, Result},
	store::is_plain,
};
use axum::http::{HeaderName, HeaderValue, request::Parts};
use flashfork_terminal::CliError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode};
use ring::{digest, hmac};
use serde::Deserialize;
use std::{
	collections::BTreeMap,
	path::Path,
	time::{Duration, SystemTime},
};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: &str = "x-amz-date";
const BODY: &str = "x-amz-content-sha256";
/// How far a request's date may be from now.
const SKEW: Duration = Duration::from_secs(15 * 60);
/// Most bytes of a header `Authorization`, and of a secret least.
const MOST_AUTHORIZATION: usize = 4096;
const LEAST_SECRET: usize = 20;

/// What a key may do with its owner's functions.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Right {
	/// Deploy and undeploy.
	Deploy,
	Invoke,
	/// List functions, read logs and what has come of events.
	Read,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
	secret: String,
	owner: String,
	may: Vec<Right>,
}

/// All keys, by their ids.
pub struct Keys(BTreeMap<String, Key>);

/// A signature that has yet to be checked.
pub struct Claim<'a> {
	key: &'a Key,
	right: Right,
	date: &'a str,
	scope: &'a str,
	signed: Vec<(&'a str, &'a str)>,
	signature: [u8; 32],
}

impl Keys {
	/// Reads TOML, a table `[ID]` for each key. No message shows what is in the file.
	pub fn read(path: &Path, text: &[u8]) -> std::result::Result<Keys, CliError> {
		let bad = |why: &str| CliError::Unable(format!("{}: {why}", path.display()));
		let text = std::str::from_utf8(text).map_err(|e| bad(&e.to_string()))?;
		let keys: BTreeMap<String, Key> = toml::from_str(text).map_err(|e| {
			let line = text[..e.span().map_or(0, |span| span.start)].matches('\n').count() + 1;
			bad(&format!("line {line}: {}", e.message()))
		})?;
		for (id, key) in &keys {
			if !is_plain(id) || !is_plain(&key.owner) {
				return Err(bad("ids of keys, and owners, are 1 to 64 letters, digits, '_' and '-'"));
			}
			if key.secret.len() < LEAST_SECRET {
				return Err(bad(&format!("the secret of {id} has less than {LEAST_SECRET} characters")));
			}
		}
		if keys.is_empty() {
			return Err(bad("it has no key"));
		}
		Ok(Keys(keys))
	}

	/// What can be told of a request before its body has come.
	pub fn claim<'a>(&'a self, parts: &'a Parts, right: Right) -> Result<Claim<'a>> {
		let bad = |why: &str| ApiError::signature(format!("the request is not signed as it must be: {why}"));
		let Some(authorization) = one(parts, "authorization")? else {
			return Err(ApiError::unsigned("this server takes requests that are signed with one of its keys"));
		};
		if authorization.len() > MOST_AUTHORIZATION {
			return Err(bad("Authorization is too long"));
		}
		let fields = authorization.strip_prefix(ALGORITHM).and_then(|rest| rest.strip_prefix(' '));
		let fields: Vec<_> = fields
			.ok_or_else(|| bad("by another algorithm than AWS4-HMAC-SHA256"))?
			.split(',')
			.filter_map(|field| field.trim().split_once('='))
			.collect();
		let [("Credential", credential), ("SignedHeaders", names), ("Signature", signature)] = fields[..] else {
			return Err(bad("Authorization has Credential, SignedHeaders and Signature"));
		};
		let (id, scope) = credential.split_once('/').unwrap_or_default();
		let key = self.0.get(id).ok_or_else(|| ApiError::unknown_key("the key is not known here"))?;
		let date = one(parts, DATE)?.ok_or_else(|| bad("X-Amz-Date is missing"))?;
		if !is_near(date) {
			return Err(bad("more than 15 minutes ago, or by a clock that is wrong"));
		}
		let words: Vec<_> = scope.split('/').collect();
		if !matches!(words[..], [day, _, "lambda", "aws4_request"] if date.starts_with(day) && day.len() == 8) {
			return Err(bad("a credential is KEY/DAY/REGION/lambda/aws4_request"));
		}
		if one(parts, BODY)?.is_some_and(|hash| hash.len() != 64) {
			return Err(bad("the body is to be signed, as a whole"));
		}
		let names: Vec<_> = names.split(';').collect();
		if !names.is_sorted_by(|a, b| a < b) {
			return Err(bad("SignedHeaders are in order, each once"));
		}
		// Whoever passes it on may not add to what it means.
		let means = parts.headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with("x-amz-"));
		if let Some(name) = means.chain(["host", DATE]).find(|name| !names.contains(name)) {
			return Err(bad(&format!("{name} is to be among SignedHeaders")));
		}
		let value = |name| Ok((name, one(parts, name)?.ok_or_else(|| bad("a signed header is missing"))?));
		let signed = names.into_iter().map(value).collect::<Result<_>>()?;
		let mut bytes = [0; 32];
		hex::decode_to_slice(signature, &mut bytes).map_err(|_| bad("a signature is 64 hexadecimal digits"))?;
		Ok(Claim { key, right, date, scope, signed, signature: bytes })
	}
}

impl Claim<'_> {
	/// The owner, if the signature is right, and the key may do that: what it may only who has its secret is told.
	pub fn check(&self, parts: &Parts, body: &[u8]) -> Result<String> {
		let hash = hex::encode(digest::digest(&digest::SHA256, body));
		if self.signed.iter().any(|(name, value)| *name == BODY && *value != hash) {
			return Err(ApiError::signature("the body is another one than was signed"));
		}
		let text = to_sign(parts, self.date, self.scope, &self.signed, &hash);
		// In a time that doesn't tell where they differ.
		hmac::verify(&key(&self.key.secret, self.scope), text.as_bytes(), &self.signature)
			.map_err(|_| ApiError::signature("the signature is wrong: the secret is another one, or the request"))?;
		if !self.key.may.contains(&self.right) {
			let right = format!("{:?}", self.right).to_lowercase();
			return Err(ApiError::denied(format!("the key may not do that: `{right}` is not among what it may")));
		}
		Ok(self.key.owner.clone())
	}
}

/// The value of a header that may not be there twice, as it is signed.
fn one<'a>(parts: &'a Parts, name: &str) -> Result<Option<&'a str>> {
	let mut all = parts.headers.get_all(name).iter();
	match (all.next().map(HeaderValue::to_str), all.next()) {
		(None, _) => Ok(None),
		(Some(Ok(value)), None) => Ok(Some(value)),
		_ => Err(ApiError::signature(format!("the header {name} is there twice, or not ASCII"))),
	}
}

/// Whether a request's date is near enough to now.
fn is_near(date: &str) -> bool {
	let now = SystemTime::now();
	let [first, last] = [now - SKEW, now + SKEW].map(|time| number(&written(time)));
	number(date).is_some_and(|date| Some(date) >= first && Some(date) <= last)
}

/// What a request's date is as a number, so that later ones are larger.
fn number(date: &str) -> Option<u64> {
	let (day, time) = date.strip_suffix('Z')?.split_once('T')?;
	let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
	(digits(day, 8) && digits(time, 6)).then(|| format!("{day}{time}").parse().ok())?
}

/// `YYYYMMDDTHHMMSSZ`.
fn written(time: SystemTime) -> String {
	humantime::format_rfc3339_seconds(time).to_string().replace(['-', ':'], "")
}

/// What is made of the secret for this scope.
fn key(secret: &str, scope: &str) -> hmac::Key {
	let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
	scope
		.split('/')
		.fold(first, |key, word| hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, word.as_bytes()).as_ref()))
}

/// What is signed of a request.
fn to_sign(parts: &Parts, date: &str, scope: &str, signed: &[(&str, &str)], body: &str) -> String {
	const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
	const PATH: &AsciiSet = &PLAIN.remove(b'/');
	let encode = |text: &str| percent_encode(&percent_decode_str(text).collect::<Vec<_>>(), PLAIN).to_string();
	let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
	let mut pairs: Vec<_> = pairs
		.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
		.map(|(name, value)| (encode(name), encode(value)))
		.collect();
	pairs.sort_unstable();
	let query: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
	let headers: String = signed
		.iter()
		.map(|(name, value)| format!("{name}:{}\n", value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")))
		.collect();
	// Of a path that is encoded, as it is on the wire, once more.
	let (method, path) = (&parts.method, utf8_percent_encode(parts.uri.path(), PATH));
	let (query, names) = (query.join("&"), names(signed));
	let request = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{body}");
	let hash = hex::encode(digest::digest(&digest::SHA256, request.as_bytes()));
	format!("{ALGORITHM}\n{date}\n{scope}\n{hash}")
}

fn names(signed: &[(&str, &str)]) -> String {
	signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
}

/// Signs a request, with all headers that it has.
pub fn sign(parts: &mut Parts, id: &str, secret: &str, body: &[u8]) -> Result<()> {
	let value = |text: &str| HeaderValue::from_str(text).map_err(ApiError::invalid);
	let date = written(SystemTime::now());
	parts.headers.insert(DATE, value(&date)?);
	let all: BTreeMap<_, _> = parts.headers.iter().map(|(name, value)| (name.as_str(), value.to_str())).collect();
	let all = all.into_iter().map(|(name, value)| Ok((name, value.map_err(ApiError::invalid)?)));
	let signed = all.collect::<Result<Vec<_>>>()?;
	let scope = format!("{}/local/lambda/aws4_request", &date[..8]);
	let text = to_sign(parts, &date, &scope, &signed, &hex::encode(digest::digest(&digest::SHA256, body)));
	let signature = hex::encode(hmac::sign(&key(secret, &scope), text.as_bytes()));
	let names = names(&signed);
	let text = format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
	parts.headers.insert("authorization", value(&text)?);
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;
	use axum::http::Request;

	/// Examples of AWS's test suite of Signature Version 4: `get-vanilla-query-order-key-case`, and
	/// `get-header-value-trim`.
	#[test]
	fn known_requests_have_their_known_signatures() {
		let (date, scope) = ("20150830T123600Z", "20150830/us-east-1/service/aws4_request");
		let empty = hex::encode(digest::digest(&digest::SHA256, b""));
		let host = ("host", "example.amazonaws.com");
		for (uri, headers, known) in [
			(
				"/?Param2=value2&Param1=value1",
				&[host, (DATE, date)][..],
				"b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
			),
			(
				"/",
				&[host, ("my-header1", " value1"), ("my-header2", " \"a   b   c\""), (DATE, date)],
				"acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
			),
		] {
			let (parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
			let text = to_sign(&parts, date, scope, headers, &empty);
			let key = key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", scope);
			assert_eq!(hex::encode(hmac::sign(&key, text.as_bytes())), known);
		}
	}

	const FILE: &str = "[A]\nsecret = 'twenty characters, it has'\nowner = 'one'\nmay = ['invoke']\n";

	#[test]
	fn a_date_is_near_for_15_minutes() {
		let (now, second) = (SystemTime::now(), Duration::from_secs(1));
		for (time, near) in [
			(now - 905 * second, false),
			(now - 880 * second, true),
			(now + 890 * second, true),
			(now + 920 * second, false),
		] {
			assert_eq!(is_near(&written(time)), near, "{time:?}");
		}
		for wrong in ["", "20260101T1200000", "2026-01-01T12:00:00Z", "99999999999999999999T000000Z"] {
			assert!(!is_near(wrong), "{wrong}");
		}
	}

	#[test]
	fn rights_are_those_of_the_file() {
		let keys = Keys::read(Path::new("keys"), FILE.as_bytes()).unwrap();
		let request = Request::post("/2015-03-31/functions/f%20/invocations?b=%7e&a").header("host", "here");
		let (mut parts, ()) = request.body(()).unwrap().into_parts();
		sign(&mut parts, "A", "twenty characters, it has", b"{}").unwrap();
		assert_eq!(keys.claim(&parts, Right::Invoke).unwrap().check(&parts, b"{}").unwrap(), "one");
		let deploy = |body: &[u8]| keys.claim(&parts, Right::Deploy).unwrap().check(&parts, body).unwrap_err().kind;
		// What a key may only who has its secret is told.
		assert_eq!((deploy(b"{}"), deploy(b"")), ("AccessDeniedException", "InvalidSignatureException"));
		for (file, why) in [
			("", "no key"),
			("[A]\nsecret = 'twenty characters, it has'\nowner = 'one'", "line 1: missing field `may`"),
			(&FILE.replace("one", "a/b"), "owners"),
			(&FILE.replace("twenty characters, ", ""), "less than 20"),
			(&FILE.replace("invoke", "read', 'all"), "unknown variant `all`"),
			(&format!("{FILE}more = 1"), "line 5: unknown field `more`"),
			(&format!("{FILE}{FILE}"), "line 5: duplicate key"),
		] {
			let e = Keys::read(Path::new("keys"), file.as_bytes()).err().unwrap().to_string();
			assert!(e.contains(why) && !e.contains("it has'"), "{e}");
		}
	}
}
