//! Who was cloned or forked from whom.

use super::show::{mebibytes, state};
use flashfork_proto::api::{Clone, CloneState, Template};
use std::collections::HashMap;

#[derive(Clone, Copy)]
enum Node<'a> {
	Template(&'a Template),
	Clone(&'a Clone),
}

/// Drops what has ended, unless `all` of it is wanted or something is below it that has not.
pub fn prune(templates: &[Template], clones: &mut Vec<Clone>, all: bool) {
	if all {
		return;
	}
	let tree = Tree::new(templates, clones);
	let mut kept = vec![false; tree.nodes.len()];
	for at in 0..tree.nodes.len() {
		let ended = matches!(tree.nodes[at], Node::Clone(clone) if clone.state == CloneState::Ended);
		let mut above = if ended { None } else { Some(at) };
		// Whatever is above one that is kept is kept already.
		while let Some(at) = above.filter(|at| !kept[*at]) {
			kept[at] = true;
			above = tree.parents[at];
		}
	}
	let mut kept = kept.into_iter().skip(templates.len());
	clones.retain(|_| kept.next().unwrap_or(true));
}

/// All of them, each below the one that it came from, as far as that is there.
pub fn show(templates: &[Template], clones: &[Clone]) -> String {
	let tree = Tree::new(templates, clones);
	let mut lines = vec![format!("{:32} {:9} {:>12}  SHARED", "NAME", "STATE", "MEMORY")];
	let roots = (0..tree.nodes.len()).filter(|at| tree.parents[*at].is_none());
	roots.for_each(|at| tree.add(at, "", "", &mut lines));
	lines.join("\n")
}

/// Nodes by their numbers: templates, then clones. Each is younger than its parent.
struct Tree<'a> {
	nodes: Vec<Node<'a>>,
	parents: Vec<Option<usize>>,
	children: Vec<Vec<usize>>,
}

impl<'a> Tree<'a> {
	fn new(templates: &'a [Template], clones: &'a [Clone]) -> Self {
		let nodes: Vec<_> = templates.iter().map(Node::Template).chain(clones.iter().map(Node::Clone)).collect();
		// No two of a kind have one name.
		let of_templates: HashMap<_, _> = templates.iter().zip(0..).map(|(one, at)| (one.name.as_str(), at)).collect();
		let of_clones: HashMap<_, _> =
			clones.iter().zip(templates.len()..).map(|(one, at)| (one.name.as_str(), at)).collect();
		// Of clones whose ancestors are gone, the template that these were cloned from. Who has a name may be another
		// than who had it.
		let parent = |node: &Node<'_>| {
			let older = |at: &&usize| nodes[**at].made_ns() < node.made_ns();
			let forked = node.forked_from().and_then(|name| of_clones.get(name)).filter(older);
			let template = if let Node::Clone(clone) = node { of_templates.get(clone.template.as_str()) } else { None };
			forked.or(template.filter(older)).copied()
		};
		let parents: Vec<_> = nodes.iter().map(parent).collect();
		let mut children = vec![Vec::new(); nodes.len()];
		for (at, parent) in parents.iter().enumerate() {
			parent.iter().for_each(|parent: &usize| children[*parent].push(at));
		}
		Self { nodes, parents, children }
	}

	fn add(&self, at: usize, branch: &str, indent: &str, lines: &mut Vec<String>) {
		let node = self.nodes[at];
		let is_clone = |at: usize| matches!(self.nodes[at], Node::Clone(_));
		let gone = node.forked_from().filter(|_| !self.parents[at].is_some_and(is_clone));
		let gone = gone.map_or(String::new(), |from| format!("  forked from clone {from}, which is gone"));
		lines.push(format!("{}{gone}", line(branch, node)).trim_end().to_owned());
		let below = &self.children[at];
		for (index, child) in below.iter().enumerate() {
			let last = index + 1 == below.len();
			let (branch, next) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
			self.add(*child, &format!("{indent}{branch}"), &format!("{indent}{next}"), lines);
		}
	}
}

impl<'a> Node<'a> {
	fn made_ns(self) -> u64 {
		match self {
			Node::Template(template) => template.made_ns,
			Node::Clone(clone) => clone.made_ns,
		}
	}

	fn forked_from(self) -> Option<&'a str> {
		match self {
			Node::Template(template) => template.forked_from.as_deref(),
			Node::Clone(clone) => clone.forked_from.as_deref(),
		}
	}
}

fn line(branch: &str, node: Node<'_>) -> String {
	let (name, state, memory, shared) = match node {
		Node::Template(t) => (&t.name, "template", Some(t.resident_bytes), mebibytes(t.shared_bytes)),
		Node::Clone(c) => (&c.name, state(c.state), c.memory_bytes, String::new()),
	};
	let memory = memory.map_or("-".into(), mebibytes);
	format!("{:32} {state:9} {memory:>12}  {shared}", format!("{branch}{name}"))
}

#[cfg(test)]
mod tests;
