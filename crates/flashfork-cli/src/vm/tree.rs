//! Who was cloned or forked from whom.

use super::show::{mebibytes, state};
use flashfork_proto::api::{Clone, Template};

/// A template or a clone.
#[derive(Clone, Copy)]
enum Node<'a> {
    Template(&'a Template),
    Clone(&'a Clone),
}

/// All of them, each below the one that it came from, as far as that is there.
pub fn show(templates: &[Template], clones: &[Clone]) -> String {
    let tree = Tree { templates, clones };
    let mut shown =
        Shown { lines: vec![format!("{:32} {:9} {:>12}  SHARED", "NAME", "STATE", "MEMORY")], nodes: vec![] };
    let (roots, others): (Vec<_>, Vec<_>) = tree.nodes().partition(|node| tree.parent(*node).is_none());
    // Where names were used again two may seem to come from each other.
    roots.into_iter().chain(others).for_each(|node| tree.add(node, "", "", &mut shown));
    shown.lines.join("\n")
}

struct Shown<'a> {
    lines: Vec<String>,
    nodes: Vec<Node<'a>>,
}

struct Tree<'a> {
    templates: &'a [Template],
    clones: &'a [Clone],
}

impl<'a> Tree<'a> {
    fn nodes(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        self.templates.iter().map(Node::Template).chain(self.clones.iter().map(Node::Clone))
    }

    fn clone(&self, name: Option<&str>) -> Option<Node<'a>> {
        self.clones.iter().find(|clone| Some(clone.name.as_str()) == name).map(Node::Clone)
    }

    /// What it came from; of clones whose ancestors are gone, the template that these were cloned from.
    fn parent(&self, of: Node<'a>) -> Option<Node<'a>> {
        match of {
            Node::Template(template) => self.clone(template.forked_from.as_deref()),
            Node::Clone(clone) => self
                .clone(clone.forked_from.as_deref())
                .or_else(|| self.templates.iter().find(|template| template.name == clone.template).map(Node::Template)),
        }
    }

    fn add(&self, node: Node<'a>, branch: &str, indent: &str, shown: &mut Shown<'a>) {
        if shown.nodes.iter().any(|other| other.is(node)) {
            return;
        }
        shown.nodes.push(node);
        let from = match node {
            Node::Template(template) => &template.forked_from,
            Node::Clone(clone) => &clone.forked_from,
        };
        let gone = from.as_deref().filter(|from| self.clone(Some(from)).is_none());
        let gone = gone.map_or(String::new(), |from| format!("  forked from {from}, which is gone"));
        shown.lines.push(format!("{}{gone}", line(branch, node)).trim_end().to_owned());
        let is_below = |other: &Node<'a>| self.parent(*other).is_some_and(|parent| parent.is(node));
        let below: Vec<_> = self.nodes().filter(is_below).collect();
        for (index, child) in below.iter().enumerate() {
            let last = index + 1 == below.len();
            let (branch, next) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
            self.add(*child, &format!("{indent}{branch}"), &format!("{indent}{next}"), shown);
        }
    }
}

impl Node<'_> {
    /// No two of a kind have one name.
    fn is(self, other: Node<'_>) -> bool {
        match (self, other) {
            (Node::Template(one), Node::Template(other)) => one.name == other.name,
            (Node::Clone(one), Node::Clone(other)) => one.name == other.name,
            _ => false,
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
    use flashfork_proto::api::CloneState;
    use flashfork_proto::shape::{Pages, Shape};

    fn template(name: &str, from: Option<&str>) -> Template {
        Template {
            name: name.into(),
            shape: Shape { memory_mib: 256, vcpus: 1, pages: Pages::Small, disk: false },
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
            clone("web-1-2", "web", Some("web-1")),
            clone("orphan", "web", Some("web-9")),
            clone("alone", "none", Some("gone-1")),
        ];
        let shown = show(&templates, &clones);
        let name = |line: &str| line.chars().take(32).collect::<String>().trim_end().to_owned();
        let names: Vec<_> = shown.lines().skip(1).map(name).collect();
        let expected = [
            "web",
            "├── web-1",
            "│   ├── warm",
            "│   │   └── warm-4",
            "│   └── web-1-2",
            "└── orphan",
            "left",
            "alone",
        ];
        assert_eq!(names, expected, "{shown}");
        let notes = shown.lines().filter(|line| line.ends_with("which is gone")).count();
        assert_eq!(notes, 3, "{shown}");
        assert_eq!(show(&[], &[]).lines().count(), 1);
        // The first `a` is gone, and another one was forked from its child.
        let again = show(&[], &[clone("a", "none", Some("b")), clone("b", "none", Some("a"))]);
        assert_eq!(again.lines().count(), 3, "{again}");
    }
}
