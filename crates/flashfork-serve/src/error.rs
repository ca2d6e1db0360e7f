//! What a request fails with, as AWS Lambda says it.

use axum::{
	Json,
	http::{HeaderValue, StatusCode, header},
	response::{IntoResponse, Response},
};
use serde_json::json;
use std::fmt::Display;

/// A status, the name of an exception, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}: {why}")]
pub struct ApiError {
	pub status: StatusCode,
	pub kind: &'static str,
	pub why: String,
}

/// What a request may come to.
pub type Result<T> = std::result::Result<T, ApiError>;

macro_rules! errors {
	($($name:ident: $status:ident, $kind:literal;)*) => {
		impl ApiError {
			/// One that another node has told of.
			pub fn told(status: u16, kind: &str, why: String) -> ApiError {
				let known = [$((StatusCode::$status, $kind)),*];
				let (status, kind) = known
					.into_iter()
					.find(|one| (one.0.as_u16(), one.1) == (status, kind))
					.unwrap_or((StatusCode::INTERNAL_SERVER_ERROR, "ServiceException"));
				ApiError { status, kind, why }
			}

			$(#[doc = concat!("`", $kind, "`.")]
			pub fn $name(why: impl Display) -> ApiError {
				ApiError { status: StatusCode::$status, kind: $kind, why: why.to_string() }
			})*
		}
	};
}

errors! {
	invalid: BAD_REQUEST, "InvalidParameterValueException";
	bad_content: BAD_REQUEST, "InvalidRequestContentException";
	denied: FORBIDDEN, "AccessDeniedException";
	unsigned: FORBIDDEN, "MissingAuthenticationTokenException";
	unknown_key: FORBIDDEN, "UnrecognizedClientException";
	signature: FORBIDDEN, "InvalidSignatureException";
	conflict: CONFLICT, "ResourceConflictException";
	not_found: NOT_FOUND, "ResourceNotFoundException";
	slow: REQUEST_TIMEOUT, "RequestTimeoutException";
	too_large: PAYLOAD_TOO_LARGE, "RequestTooLargeException";
	too_many: TOO_MANY_REQUESTS, "TooManyRequestsException";
	service: INTERNAL_SERVER_ERROR, "ServiceException";
	unavailable: SERVICE_UNAVAILABLE, "ServiceException";
	lost: GATEWAY_TIMEOUT, "ServiceException";
	not_ready: BAD_GATEWAY, "ResourceNotReadyException";
}

impl ApiError {
	/// There is one version of each.
	pub fn no_version(name: &str, version: &str) -> ApiError {
		ApiError::not_found(format!("Function not found: {name}:{version}: $LATEST is all there is"))
	}

	/// There is no function of this name.
	pub fn no_function(name: &str) -> ApiError {
		ApiError::not_found(format!("Function not found: {name}"))
	}
}

impl From<std::io::Error> for ApiError {
	fn from(e: std::io::Error) -> ApiError {
		ApiError::service(e)
	}
}

impl IntoResponse for ApiError {
	fn into_response(self) -> Response {
		let fault = if self.status.is_server_error() { "Service" } else { "User" };
		let body = Json(json!({ "Type": fault, "Message": self.why, "message": self.why }));
		let mut response = (self.status, [("x-amzn-errortype", self.kind)], body).into_response();
		if self.status == StatusCode::TOO_MANY_REQUESTS {
			response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
		}
		response
	}
}
