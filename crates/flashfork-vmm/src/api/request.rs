//! What comes with a request. What makes no sense is told as every other failure is.

use super::{Failure, serve::PATIENCE};
use axum::{
	Json,
	extract::{
		FromRequest, FromRequestParts, Path, Request,
		rejection::{JsonRejection, PathRejection},
	},
	http::request::Parts,
};
use flashfork_proto::api::{self, ErrorCode};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use std::{fmt, marker::PhantomData};
use tokio::time::timeout;

/// The body: a JSON object. serde takes a list of values for a structure, too, and so an empty one for a request
/// without any settings.
pub(super) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
	type Rejection = Failure;

	async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
		let body = timeout(PATIENCE, Json::from_request(request, state)).await;
		let Json(Object(body)) = body.map_err(|_| {
			let message = format!("the body did not come within {} s", PATIENCE.as_secs());
			Failure(api::Error { code: ErrorCode::Invalid, message })
		})??;
		Ok(Self(body))
	}
}

pub(super) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
	type Rejection = Failure;

	async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
		let Path(name) = Path::from_request_parts(parts, state).await?;
		Ok(Self(name))
	}
}

impl From<JsonRejection> for Failure {
	fn from(rejection: JsonRejection) -> Self {
		Self(api::Error { code: ErrorCode::Invalid, message: rejection.body_text() })
	}
}

impl From<PathRejection> for Failure {
	fn from(rejection: PathRejection) -> Self {
		Self(api::Error { code: ErrorCode::Invalid, message: rejection.body_text() })
	}
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
	fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
		struct Fields<T>(PhantomData<T>);
		impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
			type Value = Object<T>;

			fn expecting(&self, text: &mut fmt::Formatter) -> fmt::Result {
				text.write_str("an object")
			}

			fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
				T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
			}
		}
		deserializer.deserialize_map(Fields(PhantomData))
	}
}
