//! Where in a file the field of a path stands.

use std::ops::Range;

use serde_json::Value;

use super::yaml::{Entry, Node, Tree};

/// A place in a file, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    /// In characters.
    pub(super) column: usize,
}

/// Where the value at `path` stands and, if it is written out, the value.
/// For one that is missing: the nearest thing around it that is there.
pub(super) fn value<'a>(
    root: &'a Node,
    path: &str,
    text: &str,
) -> (Range<usize>, Option<&'a Node>) {
    let (entry, node, whole) = walk(root, path);
    let span = match entry {
        // The key stands for a value that is long, or that is nothing.
        Some(entry) if node.span.is_empty() || on_lines(entry, text) => &entry.key_span,
        _ => &node.span,
    };
    (span.clone(), whole.then_some(node))
}

/// Where the key at `path` stands.
pub(super) fn key(root: &Node, path: &str) -> Range<usize> {
    match walk(root, path) {
        (Some(entry), _, true) => entry.key_span.clone(),
        (_, node, _) => node.span.clone(),
    }
}

/// A key that YAML reads as something else than what is written.
pub(super) struct Misread<'a> {
    /// As it is written.
    pub(super) written: &'a str,
    /// As it is read.
    pub(super) read: &'a str,
}

/// A path with the keys as they are written, and the last of those that are read
/// as something else: `y` without quotes is `true`.
pub(super) fn as_written<'a>(
    root: &'a Node,
    path: &str,
    text: &'a str,
) -> (String, Option<Misread<'a>>) {
    let (mut node, mut misread) = (root, None);
    let (mut told, mut from) = (String::new(), 0);
    for step in steps(path) {
        let name = path.get(step.clone()).unwrap_or_default();
        let next = match &node.value {
            Tree::Map(_) => node.entry(name).map(|entry| {
                let written = text.get(entry.key_span.clone()).unwrap_or_default().trim();
                if written != entry.key && !written.is_empty() && !written.starts_with(['"', '\''])
                {
                    told.push_str(path.get(from..step.start).unwrap_or_default());
                    told.push_str(written);
                    from = step.end;
                    let read = entry.key.as_str();
                    misread = Some(Misread { written, read });
                }
                &entry.value
            }),
            Tree::List(elements) => name.parse().ok().and_then(|at: usize| elements.get(at)),
            _ => None,
        };
        match next {
            Some(next) => node = next,
            None => break,
        }
    }
    told.push_str(path.get(from..).unwrap_or_default());
    (told, misread)
}

/// Puts a text in the place of the value at `path`; false if there is none.
pub(super) fn put(object: &mut Value, path: &str, text: &str) -> bool {
    let mut at = object;
    for step in steps(path) {
        let step = path.get(step).unwrap_or_default();
        let next = match at {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(elements) => step.parse().ok().and_then(|i: usize| elements.get_mut(i)),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    *at = Value::String(text.to_owned());
    true
}

/// The deepest node on the way, its entry if it is the value of a key, and
/// whether it is the end of the way.
fn walk<'a>(root: &'a Node, path: &str) -> (Option<&'a Entry>, &'a Node, bool) {
    let (mut entry, mut node) = (None, root);
    for step in steps(path) {
        let step = path.get(step).unwrap_or_default();
        match &node.value {
            Tree::Map(_) => match node.entry(step) {
                Some(found) => (entry, node) = (Some(found), &found.value),
                None => return (entry, node, false),
            },
            Tree::List(elements) => {
                match step
                    .parse()
                    .ok()
                    .and_then(|index: usize| elements.get(index))
                {
                    Some(found) => (entry, node) = (None, found),
                    None => return (entry, node, false),
                }
            }
            _ => return (entry, node, false),
        }
    }
    (entry, node, true)
}

/// The steps of a path: fields after dots, elements and keys in brackets.
fn steps(path: &str) -> Vec<Range<usize>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let at = path.len() - rest.len();
        let end = if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']').unwrap_or(inner.len());
            steps.push(at + 1..at + 1 + end);
            end + 2
        } else {
            let field = rest.strip_prefix('.').unwrap_or(rest);
            let dot = rest.len() - field.len();
            let end = field.find(['.', '[']).unwrap_or(field.len());
            steps.push(at + dot..at + dot + end);
            end + dot
        };
        rest = rest.get(end..).unwrap_or_default();
    }
    steps
}

/// Whether key and value take more than one line.
fn on_lines(entry: &Entry, text: &str) -> bool {
    let whole = entry.key_span.start..entry.value.span.end;
    let whole = text.get(whole).unwrap_or_default();
    whole.trim_end().contains('\n')
}

/// Line and column of a byte.
pub(super) fn position(text: &str, at: usize) -> Position {
    let before = up_to(text, at);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    Position {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
    }
}

/// The line that a byte stands in, and where it begins.
pub(super) fn line(text: &str, at: usize) -> (&str, usize) {
    let start = up_to(text, at).rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..).unwrap_or_default();
    let line = line.split('\n').next().unwrap_or_default();
    (line.strip_suffix('\r').unwrap_or(line), start)
}

fn up_to(text: &str, at: usize) -> &str {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.get(..at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::lint::yaml::documents;

    const TEXT: &str = "\
metadata:
  annotations: {belay.dev/abort: x, ä: y}
spec:
  components:
  - workload:
      name: cart
  - workload: {name: web}
  strategy:
";

    fn shown(path: &str) -> String {
        let root = documents(TEXT).remove(0).unwrap().root;
        let (span, _) = value(&root, path, TEXT);
        let at = position(TEXT, span.start);
        format!("{}:{} {}", at.line, at.column, &TEXT[span])
    }

    #[test]
    fn a_path_leads_to_its_value_or_to_what_is_nearest() {
        for (path, place) in [
            ("spec.components[0].workload.name", "6:13 cart"),
            ("spec.components[0].workload.kind", "5:5 workload"),
            ("spec.components[1].workload", "7:15 {name: web}"),
            ("spec.components[1].workload.kind", "7:15 {name: web}"),
            ("spec.components", "4:3 components"),
            ("spec.components[7].name", "4:3 components"),
            ("spec.strategy", "8:3 strategy"),
            ("spec.bakeTime", "3:1 spec"),
            ("metadata.annotations[belay.dev/abort]", "2:34 x"),
            ("metadata.annotations[ä]", "2:40 y"),
        ] {
            assert_eq!(shown(path), place, "{path}");
        }
    }

    #[test]
    fn lines_and_columns_are_counted_in_characters() {
        let text = "a\r\nä: b\nc";
        let at = |byte| (position(text, byte).line, position(text, byte).column);
        assert_eq!(
            [at(0), at(3), at(5), at(9), at(99)],
            [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)]
        );
        // In the middle of a character.
        assert_eq!(at(4), (2, 1));
        assert_eq!(line(text, 6), ("ä: b", 3));
        assert_eq!(line(text, 1), ("a", 0));
    }
}
