//! Who may ask: keys, by which requests are signed as AWS's SDKs sign them (Signature Version 4).

use crate::error::{ApiError, Result};
use crate::store::hex;
use axum::http::request::Parts;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How many seconds a signature counts, before and after.
const SKEW: u64 = 300;

/// A key's secret, and whose it is.
pub struct Key {
    secret: String,
    owner: String,
}

/// By their ids.
pub struct Keys(HashMap<String, Key>);

/// A signature that has yet to be checked.
pub struct Claim<'a> {
    key: &'a Key,
    scope: &'a str,
    headers: Vec<&'a str>,
    signature: &'a str,
    date: &'a str,
}

impl Keys {
    /// Lines `ID SECRET OWNER`; lines that begin with `#` are left out.
    pub fn read(path: &Path) -> std::io::Result<Keys> {
        let bad = |why: String| std::io::Error::other(format!("{}: {why}", path.display()));
        if std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path)?) & 0o077 != 0 {
            return Err(bad("others may read it (chmod 600)".into()));
        }
        let mut keys = HashMap::new();
        for line in
            std::fs::read_to_string(path)?.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        {
            let words: Vec<_> = line.split_whitespace().collect();
            let [id, secret, owner] = words[..] else {
                return Err(bad("each line is ID SECRET OWNER".into()));
            };
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if owner.is_empty() || owner.len() > 64 || !owner.bytes().all(plain) || secret.len() < 16 {
                return Err(bad(
                    "an owner is 1 to 64 letters, digits, '_' and '-', a secret 16 characters or more".into()
                ));
            }
            if keys.insert(id.to_owned(), Key { secret: secret.to_owned(), owner: owner.to_owned() }).is_some() {
                return Err(bad(format!("{id} is there twice")));
            }
        }
        if keys.is_empty() { Err(bad("it has no key".into())) } else { Ok(Keys(keys)) }
    }

    /// What can be told before a request's body has come.
    pub fn claim<'a>(&'a self, parts: &'a Parts) -> Result<Claim<'a>> {
        let denied =
            || ApiError::denied("the request is not signed with a key that is known here (Signature Version 4)");
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let fields = header("authorization").and_then(|text| text.strip_prefix(ALGORITHM)).ok_or_else(denied)?;
        let field = |name: &str| fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='));
        let all = (field("Credential"), field("SignedHeaders"), field("Signature"));
        let (Some(credential), Some(signed), Some(signature)) = all else { return Err(denied()) };
        let (id, scope) = credential.split_once('/').ok_or_else(denied)?;
        let key = self.0.get(id).ok_or_else(denied)?;
        let date = header("x-amz-date").ok_or_else(denied)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // Of one length, they are in the order of time.
        let (first, last) = (self::date(now - SKEW), self::date(now + SKEW));
        if date.len() != first.len() || !(first.as_str()..=last.as_str()).contains(&date) {
            let why = "the request was signed more than five minutes ago, or by a clock that is wrong";
            return Err(ApiError::denied(why));
        }
        let words: Vec<_> = scope.split('/').collect();
        if !matches!(words[..], [day, _, "lambda", "aws4_request"] if Some(day) == date.get(..8)) {
            return Err(denied());
        }
        let headers: Vec<_> = signed.split(';').collect();
        // Whoever passes it on may not add to what it means.
        let means = |name: &str| name == "host" || name.starts_with("x-amz-");
        if !headers.contains(&"host")
            || !parts.headers.keys().all(|name| !means(name.as_str()) || headers.contains(&name.as_str()))
        {
            return Err(denied());
        }
        Ok(Claim { key, scope, headers, signature, date })
    }
}

impl Claim<'_> {
    /// The owner, if the signature is right.
    pub fn check(&self, parts: &Parts, body: &[u8]) -> Result<String> {
        let headers: Option<Vec<_>> =
            self.headers.iter().map(|name| Some((*name, parts.headers.get(*name)?.to_str().ok()?))).collect();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let denied = || ApiError::denied("the signature of the request is wrong");
        let text = to_sign(self.date, self.scope, parts.method.as_str(), path, &headers.ok_or_else(denied)?, body);
        let mac = mac(&self.key.secret, self.scope, &text);
        let bytes: Option<Vec<u8>> = (0..self.signature.len() / 2)
            .map(|i| u8::from_str_radix(self.signature.get(2 * i..2 * i + 2)?, 16).ok())
            .collect();
        // In a time that doesn't tell where they differ.
        mac.verify_slice(&bytes.unwrap_or_default()).map_err(|_| denied())?;
        Ok(self.key.owner.clone())
    }
}

fn hmac(key: &[u8], text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("keys may be of any length");
    mac.update(text.as_bytes());
    mac
}

/// By the key that is made of the secret for this scope.
fn mac(secret: &str, scope: &str, text: &str) -> Hmac<Sha256> {
    let first = format!("AWS4{secret}").into_bytes();
    let key = scope.split('/').fold(first, |key, word| hmac(&key, word).finalize().into_bytes().to_vec());
    hmac(&key, text)
}

/// What is signed of a request; its headers are in order.
fn to_sign(date: &str, scope: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut request = format!("{method}\n");
    // Encoded once more than it is sent.
    for byte in path.bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                request.push(char::from(byte))
            }
            _ => write!(request, "%{byte:02X}").expect("a string takes all"),
        }
    }
    let mut pairs: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    let query: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    writeln!(request, "\n{}", query.join("&")).expect("a string takes all");
    for (name, value) in headers {
        writeln!(request, "{name}:{}", value.split_whitespace().collect::<Vec<_>>().join(" "))
            .expect("a string takes all");
    }
    let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    let body = hex(&Sha256::digest(body));
    write!(request, "\n{}\n{body}", names.join(";")).expect("a string takes all");
    format!("{ALGORITHM}\n{date}\n{scope}\n{}", hex(&Sha256::digest(request)))
}

/// The headers by which a client signs a request.
pub fn sign(
    id: &str,
    secret: &str,
    method: &str,
    host: &str,
    path: &str,
    more: &[(&str, &str)],
    body: &[u8],
) -> [(&'static str, String); 2] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let date = date(now);
    let scope = format!("{}/local/lambda/aws4_request", &date[..8]);
    let mut headers = [&[("host", host), ("x-amz-date", &date)], more].concat();
    headers.sort_unstable();
    let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    let text = to_sign(&date, &scope, method, path, &headers, body);
    let signature = hex(&mac(secret, &scope, &text).finalize().into_bytes());
    let names = names.join(";");
    let authorization = format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
    [("authorization", authorization), ("x-amz-date", date)]
}

/// Days since 1970 before this year's first of March, by the Gregorian calendar.
fn days_before(year: u64) -> u64 {
    year * 365 + year / 4 - year / 100 + year / 400 - 719_468
}

/// `YYYYMMDDTHHMMSSZ` of seconds since 1970.
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970 + days / 365;
    while days_before(year) > days {
        year -= 1;
    }
    let day = days - days_before(year);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    // A year begins in March: February's end is the year's.
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (text, at) in
            [("19700301T000000Z", 5_097_600), ("20000229T235959Z", 951_868_799), ("20261231T120000Z", 1_798_718_400)]
        {
            assert_eq!(date(at), text);
        }
    }

    /// The example of AWS's documentation (Signature Version 4 test suite, `get-vanilla-query-order-key-case`).
    #[test]
    fn a_known_request_has_its_known_signature() {
        let (date, scope) = ("20150830T123600Z", "20150830/us-east-1/service/aws4_request");
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", date)];
        let text = to_sign(date, scope, "GET", "/?Param2=value2&Param1=value1", &headers, b"");
        let signature = hex(&mac("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", scope, &text).finalize().into_bytes());
        assert_eq!(signature, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
    }
}
