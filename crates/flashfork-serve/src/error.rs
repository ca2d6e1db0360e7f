//! What a request fails with, as AWS Lambda says it.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;

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
            $(#[doc = concat!("`", $kind, "`.")]
            pub fn $name(why: impl Into<String>) -> ApiError {
                ApiError { status: StatusCode::$status, kind: $kind, why: why.into() }
            })*
        }
    };
}

errors! {
    invalid: BAD_REQUEST, "InvalidParameterValueException";
    bad_content: BAD_REQUEST, "InvalidRequestContentException";
    denied: FORBIDDEN, "AccessDeniedException";
    not_found: NOT_FOUND, "ResourceNotFoundException";
    slow: REQUEST_TIMEOUT, "RequestTimeoutException";
    too_large: PAYLOAD_TOO_LARGE, "RequestTooLargeException";
    too_many: TOO_MANY_REQUESTS, "TooManyRequestsException";
    service: INTERNAL_SERVER_ERROR, "ServiceException";
    not_ready: BAD_GATEWAY, "ResourceNotReadyException";
}

impl From<std::io::Error> for ApiError {
    fn from(e: std::io::Error) -> ApiError {
        ApiError::service(e.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let fault = if self.status.is_server_error() { "Service" } else { "User" };
        let body = serde_json::json!({ "Type": fault, "Message": self.why, "message": self.why }).to_string();
        let mut response = Response::builder()
            .status(self.status)
            .header("content-type", "application/json")
            .header("x-amzn-errortype", self.kind);
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response = response.header("retry-after", "1");
        }
        response.body(Body::from(body)).expect("plain headers")
    }
}
