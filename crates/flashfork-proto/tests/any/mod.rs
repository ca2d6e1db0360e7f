//! Values of any type that serde reads, decided by a number: each variant of an enum comes up, one that was added
//! yesterday too.

use serde::de::{
	DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, SeqAccess,
	VariantAccess, Visitor,
	value::{Error, U32Deserializer},
};

/// The value that belongs to a number.
pub fn any<T: DeserializeOwned>(seed: u64) -> T {
	T::deserialize(&mut Random(seed)).expect("messages are made of what is read below")
}

/// A linear congruential generator (Knuth's).
struct Random(u64);

/// Items of a list, or fields, that are still to come.
struct Rest<'a>(&'a mut Random, usize);

impl Random {
	fn bits(&mut self) -> u64 {
		[(); 2].iter().fold(0, |bits, ()| {
			self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
			bits << 32 | self.0 >> 32
		})
	}

	fn below(&mut self, most: usize) -> usize {
		(self.bits() % most as u64) as usize
	}

	fn bytes(&mut self) -> Vec<u8> {
		let len = self.below(300);
		(0..len).map(|_| self.bits() as u8).collect()
	}
}

macro_rules! numbers {
	($($read:ident $visit:ident $kind:ty;)*) => {$(
		fn $read<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
			visitor.$visit(self.bits() as $kind)
		}
	)*};
}

impl<'de> Deserializer<'de> for &mut Random {
	type Error = Error;

	numbers! {
		deserialize_u8 visit_u8 u8;
		deserialize_u16 visit_u16 u16;
		deserialize_u32 visit_u32 u32;
		deserialize_u64 visit_u64 u64;
		deserialize_i32 visit_i32 i32;
		deserialize_i64 visit_i64 i64;
	}

	fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
		visitor.visit_bool(self.below(2) == 1)
	}

	fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
		let len = self.below(60);
		visitor.visit_string((0..len).map(|_| char::from_u32(self.below(0x800) as u32).unwrap_or_default()).collect())
	}

	fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
		visitor.visit_byte_buf(self.bytes())
	}

	fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
		if self.below(2) == 1 { visitor.visit_some(self) } else { visitor.visit_none() }
	}

	fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, Error> {
		visitor.visit_newtype_struct(self)
	}

	fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
		let count = self.below(5);
		visitor.visit_seq(Rest(self, count))
	}

	fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
		visitor.visit_seq(Rest(self, len))
	}

	fn deserialize_struct<V: Visitor<'de>>(self, _: &str, fields: &[&str], visitor: V) -> Result<V::Value, Error> {
		visitor.visit_seq(Rest(self, fields.len()))
	}

	fn deserialize_enum<V: Visitor<'de>>(self, _: &str, variants: &[&str], visitor: V) -> Result<V::Value, Error> {
		let count = variants.len();
		visitor.visit_enum(Rest(self, count))
	}

	fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
		Err(Error::custom("no message has such a type"))
	}

	serde::forward_to_deserialize_any! {
		i8 i16 i128 u128 f32 f64 char str bytes unit unit_struct tuple_struct map identifier ignored_any
	}
}

impl<'de> SeqAccess<'de> for Rest<'_> {
	type Error = Error;

	fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
		let Some(rest) = self.1.checked_sub(1) else { return Ok(None) };
		self.1 = rest;
		seed.deserialize(&mut *self.0).map(Some)
	}
}

/// One of so many variants.
impl<'de> EnumAccess<'de> for Rest<'_> {
	type Error = Error;
	type Variant = Self;

	fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
		let index: U32Deserializer<Error> = (self.0.below(self.1) as u32).into_deserializer();
		Ok((seed.deserialize(index)?, self))
	}
}

impl<'de> VariantAccess<'de> for Rest<'_> {
	type Error = Error;

	fn unit_variant(self) -> Result<(), Error> {
		Ok(())
	}

	fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
		seed.deserialize(self.0)
	}

	fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
		visitor.visit_seq(Rest(self.0, len))
	}

	fn struct_variant<V: Visitor<'de>>(self, fields: &[&str], visitor: V) -> Result<V::Value, Error> {
		visitor.visit_seq(Rest(self.0, fields.len()))
	}
}
