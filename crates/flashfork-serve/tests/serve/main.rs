//! `flashfork serve` as its clients meet it: boto3 and the SDK for JavaScript in front, AWS's runtime client behind.

mod attacks;
mod calls;
mod cluster;
mod common;
mod events;
mod java;
mod javascript;
mod keys;
mod machines;
mod nats;
mod node;
mod operations;
mod provided;
mod signatures;
#[cfg(feature = "otlp")]
mod traces;
