//! `flashfork warm`, `clone`, `ls` and `rm` on real programs.

mod attack;
mod attributes;
mod call;
mod children;
mod ends;
mod names;
mod place;
mod python;
mod scripts;
mod signals;
mod silence;
mod wrappers;
