//! `flashfork serve` as its clients meet it: boto3 in front, AWS's runtime client behind.

mod attacks;
mod calls;
mod common;
mod events;
