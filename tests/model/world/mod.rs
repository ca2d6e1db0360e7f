//! One tested process: what its memory should be and how it acts on it.

pub mod check;
pub mod choose;
pub mod maps;
pub mod memory;
pub mod space;
pub mod table;

use crate::content::Tag;
use crate::journal::Journal;
use crate::rng::Rng;
use crate::template::Template;
use flashfork_tests::route::Route;
use libc::c_int;
use space::Space;
use std::fs::File;
use table::Table;

/// A process made by this one and not waited for yet.
pub struct Child {
    pub pid: i32,
    pub name: String,
}

/// See the module.
pub struct World {
    /// `p`, its children `p.0`, `p.1`, theirs `p.0.0`: the same in every run of a seed.
    pub name: String,
    pub depth: usize,
    pub rng: Rng,
    /// For what is looked at: that depends on what the kernel took back, and must not change what is done next.
    pub look: Rng,
    pub route: Route,
    pub journal: Journal,
    pub table: Table,
    pub space: Space,
    pub template: Template,
    /// Pages of the heap now.
    pub heap_pages: usize,
    pub children: Vec<Child>,
    pub forks: usize,
    /// Ranges excluded so far; the engine has room for a few.
    pub excluded: usize,
    /// The most pages under test that were found sealed after a seal.
    pub most_sealed: usize,
    /// Advice this kernel doesn't know.
    pub unknown_advice: Vec<c_int>,
    /// Whether others act on the memory too ([`crate::steps`], visits).
    pub company: bool,
    /// A disk with the contents of the template, open for direct reads, where there is one.
    pub disk: Option<File>,
    next_tag: Tag,
    next_origin: u32,
}

impl World {
    pub fn new(seed: u64, route: Route, journal: Journal, space: Space, template: Template) -> World {
        World {
            name: "p".into(),
            depth: 0,
            rng: Rng::new(seed),
            look: Rng::new(!seed),
            route,
            journal,
            table: Table::new(),
            space,
            template,
            heap_pages: 0,
            children: Vec::new(),
            forks: 0,
            excluded: 0,
            most_sealed: 0,
            unknown_advice: crate::steps::unknown_advice(),
            company: false,
            disk: None,
            next_tag: 1 << 32,
            next_origin: 0,
        }
    }

    /// Turns a copy made by fork into the child's own world.
    pub fn become_child(&mut self, name: String, seed: u64, table: Table, journal: Journal) {
        // The parent's table stays mapped here: it is the parent's.
        std::mem::forget(std::mem::replace(&mut self.table, table));
        self.rng = Rng::new(seed);
        self.look = Rng::new(!seed);
        // Tags no other process writes: 16 bits for who, 48 for what.
        self.next_tag = (Rng::new(seed).next() | 1) << 48;
        self.name = name;
        self.journal = journal;
        self.depth += 1;
        self.forks = 0;
        self.children.clear();
    }

    pub fn tag(&mut self) -> Tag {
        self.next_tag += 1;
        self.next_tag
    }

    pub fn origin(&mut self) -> u32 {
        self.next_origin += 1;
        self.next_origin
    }
}
