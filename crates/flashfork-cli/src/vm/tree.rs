//! Who was cloned or forked from whom.

use super::show::{mebibytes, state};
use flashfork_proto::api::{Clone, CloneState, Template};
use std::collections::HashMap;

/// A template or a clone.
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
    let mut shown = Shown {
        lines: vec![format!("{:32} {:9} {:>12}  SHARED", "NAME", "STATE", "MEMORY")],
        nodes: vec![false; tree.nodes.len()],
    };
    let (roots, others): (Vec<_>, Vec<_>) = (0..tree.nodes.len()).partition(|at| tree.parents[*at].is_none());
    // Where names were used again two may seem to come from each other.
    roots.into_iter().chain(others).for_each(|at| tree.add(at, "", "", &mut shown));
    shown.lines.join("\n")
}

struct Shown {
    lines: Vec<String>,
    nodes: Vec<bool>,
}

/// Nodes by their numbers: templates, then clones.
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
        // Of clones whose ancestors are gone, the template that these were cloned from.
        let parent = |node: &Node<'_>| {
            let forked = node.forked_from().and_then(|name| of_clones.get(name));
            let cloned = if let Node::Clone(clone) = node { of_templates.get(clone.template.as_str()) } else { None };
            forked.or(cloned).copied()
        };
        let parents: Vec<_> = nodes.iter().map(parent).collect();
        let mut children = vec![Vec::new(); nodes.len()];
        for (at, parent) in parents.iter().enumerate() {
            parent.iter().for_each(|parent: &usize| children[*parent].push(at));
        }
        Self { nodes, parents, children }
    }

    fn add(&self, at: usize, branch: &str, indent: &str, shown: &mut Shown) {
        if std::mem::replace(&mut shown.nodes[at], true) {
            return;
        }
        let node = self.nodes[at];
        let is_clone = |at: usize| matches!(self.nodes[at], Node::Clone(_));
        let gone = node.forked_from().filter(|_| !self.parents[at].is_some_and(is_clone));
        let gone = gone.map_or(String::new(), |from| format!("  forked from {from}, which is gone"));
        shown.lines.push(format!("{}{gone}", line(branch, node)).trim_end().to_owned());
        let below = &self.children[at];
        for (index, child) in below.iter().enumerate() {
            let last = index + 1 == below.len();
            let (branch, next) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
            self.add(*child, &format!("{indent}{branch}"), &format!("{indent}{next}"), shown);
        }
    }
}

impl<'a> Node<'a> {
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
mod tests {
    use super::*;
    use flashfork_proto::shape::{Pages, Shape};

    fn template(name: &str, from: Option<&str>) -> Template {
        Template {
            name: name.into(),
            shape: Shape { memory_mib: 256, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 },
            created_s: 0,
            clones_made: 0,
            clones_alive: 0,
            max_clones: None,
            forked_from: from.map(Into::into),
            resident_bytes: 3 << 20,
            shared_bytes: 1 << 20,
            boot_ns: None,
        }
    }

    fn clone(name: &str, template: &str, from: Option<&str>) -> Clone {
        Clone {
            name: name.into(),
            template: template.into(),
            forked_from: from.map(Into::into),
            generation: String::new(),
            state: CloneState::Ready,
            pid: 1,
            cid: 3,
            claim: flashfork_proto::shell::ClaimTimes::default(),
            first_exit_ns: 0,
            ready_ns: None,
            trouble: None,
            ended: None,
            memory_bytes: Some(2 << 20),
        }
    }

    #[test]
    fn everything_stands_below_what_it_came_from_and_once() {
        let templates = [template("warm", Some("web-1")), template("web", None), template("left", Some("lost"))];
        let clones = [
            clone("warm-4", "warm", None),
            clone("web-1", "web", None),
            clone("web-2", "web", Some("web-1")),
            clone("orphan", "web", Some("web-9")),
            clone("alone", "none", Some("gone-1")),
        ];
        let shown = show(&templates, &clones);
        let name = |line: &str| line.chars().take(32).collect::<String>().trim_end().to_owned();
        let names: Vec<_> = shown.lines().skip(1).map(name).collect();
        let expected =
            ["web", "├── web-1", "│   ├── warm", "│   │   └── warm-4", "│   └── web-2", "└── orphan", "left", "alone"];
        assert_eq!(names, expected, "{shown}");
        let notes = shown.lines().filter(|line| line.ends_with("which is gone")).count();
        assert_eq!(notes, 3, "{shown}");
        assert_eq!(show(&[], &[]).lines().count(), 1);
        // The first `a` is gone, and another one was forked from its child.
        let again = show(&[], &[clone("a", "none", Some("b")), clone("b", "none", Some("a"))]);
        assert_eq!(again.lines().count(), 3, "{again}");
    }
    #[test]
    fn what_has_ended_is_shown_only_above_what_has_not() {
        let ended = |name: &str, from| Clone { state: CloneState::Ended, ..clone(name, "web", from) };
        let all = [ended("web-1", None), ended("web-2", Some("web-1")), ended("web-3", Some("web-1"))];
        let all: Vec<_> = all.into_iter().chain([clone("web-4", "web", Some("web-2"))]).collect();
        let names = |clones: &[Clone]| clones.iter().map(|clone| clone.name.clone()).collect::<Vec<_>>();
        let mut pruned = all.clone();
        prune(&[template("web", None)], &mut pruned, false);
        assert_eq!(names(&pruned), ["web-1", "web-2", "web-4"]);
        assert!(!show(&[], &pruned).contains("gone"));
        let mut kept = all.clone();
        prune(&[], &mut kept, true);
        assert_eq!(kept.len(), 4);
        // Two that seem to come from each other.
        let mut again = vec![clone("a", "none", Some("b")), ended("b", Some("a")), ended("c", Some("a"))];
        prune(&[], &mut again, false);
        assert_eq!(names(&again), ["a", "b"]);
    }
}
