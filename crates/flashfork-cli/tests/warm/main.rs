//! `flashfork warm`, `clone`, `ls` and `rm` on real programs.

mod ahead;
mod attack;
mod attributes;
mod bench;
mod call;
mod children;
mod ends;
mod launcher;
mod measured;
mod names;
mod place;
mod plain;
mod python;
mod scripts;
mod signals;
mod silence;
mod stale;
mod wrappers;
