//! A client of a node, by HTTP on a connection that stays open.

use http_body_util::{BodyExt, Full};
use hyper::{
	Request,
	body::Bytes,
	client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::site::{LISTEN, Site};
use crate::prelude::*;

/// The connection.
pub struct Http(SendRequest<Full<Bytes>>);

/// What is asked for.
pub enum Asked {
	Call,
	Event,
	/// What has come of an event.
	Result(String),
}

/// What comes back.
pub struct Told {
	/// The request's id, which is an event's.
	pub id: String,
	pub status: u16,
	/// Whether the function has failed.
	pub failed: bool,
	pub body: Bytes,
}

impl Http {
	/// To a node, from its own machine.
	pub async fn to(site: &Site, node: usize) -> Result<Self> {
		let doing = "connect to a node";
		// A loopback device has answered at once, whatever the answer.
		let stream = site.node(node).within(|| std::net::TcpStream::connect(LISTEN).or_cant(doing))?;
		stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).or_cant(doing)?;
		let stream = TcpStream::from_std(stream).or_cant(doing)?;
		let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(BenchError::unable)?;
		tokio::spawn(connection);
		Ok(Self(sender))
	}

	pub async fn ask(&mut self, function: &str, asked: Asked, payload: Bytes) -> Result<Told> {
		let path = format!("/2015-03-31/functions/{function}");
		let request = match asked {
			Asked::Call => Request::post(path + "/invocations"),
			Asked::Event => Request::post(path + "/invocations").header("x-amz-invocation-type", "Event"),
			Asked::Result(id) => Request::get(path + "/events/" + &id),
		};
		let request = request.header("host", LISTEN).body(Full::new(payload)).map_err(BenchError::unable)?;
		let (parts, body) = self.0.send_request(request).await.map_err(BenchError::unable)?.into_parts();
		let body = body.collect().await.map_err(BenchError::unable)?.to_bytes();
		let id = parts.headers.get("x-amzn-requestid").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
		let failed = parts.headers.contains_key("x-amz-function-error");
		Ok(Told { id, status: parts.status.as_u16(), failed, body })
	}
}
