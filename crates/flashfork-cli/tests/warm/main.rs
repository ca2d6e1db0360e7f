//! `flashfork warm`, `clone`, `ls` and `rm` on real programs.

mod attributes;
mod call;
mod ends;
mod names;
mod place;
mod python;
mod scripts;
mod signals;
