//! YAML and JSON with the place of every value.
//!
//! Decides where a document begins, what its values are and where they stand in
//! the file. Knows nothing of Kubernetes but how kubectl splits and reads a
//! file. Whatever the bytes are, the answer is a tree or a fault with a place.

use std::{collections::BTreeMap, ops::Range};

use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde::de::IgnoredAny;
use serde_json::{Map, Number, Value};

use super::scalar;

/// Deepest nesting that the webhook reads: the parser of its reviews stops at
/// 128, and the review itself takes two.
const MAX_DEPTH: usize = 125;
/// What some editors put before a text.
const MARK: char = '\u{feff}';
/// Most values in a file with all aliases written out.
const MAX_NODES: usize = 1_000_000;

/// A value and where it stands: a range of bytes in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) value: Tree,
    pub(super) span: Range<usize>,
    /// How deep it is nested, itself included, and how many values it holds.
    depth: usize,
    size: usize,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) value: Node,
    /// Whether it came in by `<<`, so that another may override it.
    merged: bool,
}

/// Why a document, or a key of one, cannot be read as it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unread {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// One document of a file.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Node,
    /// Keys that stand twice in one map.
    pub(super) twice: Vec<Unread>,
}

impl Node {
    /// The value of a key. Of two, the last one counts.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// A key with its value.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Tree::Map(entries) => entries.iter().rev().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    pub(super) fn elements(&self) -> Option<&[Self]> {
        match &self.value {
            Tree::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as the API server gets it.
    pub(super) fn to_json(&self) -> Value {
        match &self.value {
            Tree::Null => Value::Null,
            Tree::Bool(value) => Value::Bool(*value),
            Tree::Number(number) => Value::Number(number.clone()),
            Tree::Text(text) => Value::String(text.clone()),
            Tree::List(elements) => elements.iter().map(Self::to_json).collect(),
            Tree::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_json()))
                .collect::<Map<_, _>>()
                .into(),
        }
    }
}

/// All documents of a file. One that cannot be read does not hide the others.
pub(super) fn documents(text: &str) -> Vec<Result<Document, Unread>> {
    let mut read = Vec::new();
    let mut nodes = 0;
    for Chunk {
        range,
        marked,
        behind,
    } in chunks(text)
    {
        read.extend(behind.map(|span| {
            Err(Unread {
                span,
                message: "kubectl takes nothing but a comment behind --- on its line".to_owned(),
            })
        }));
        for chunk in values(text, range, marked) {
            let source = text.get(chunk.clone()).unwrap_or_default();
            // JSON may be indented by tabs, YAML may not. A space is as long.
            let spaced = (!marked && source.trim_start().starts_with(['{', '[']))
                .then(|| tabs_to_spaces(source));
            let mut builder = Builder {
                base: chunk.start,
                end: text.len(),
                nodes: &mut nodes,
                anchors: BTreeMap::new(),
                twice: Vec::new(),
            };
            builder.read(spaced.as_deref().unwrap_or(source), &mut read);
        }
    }
    read
}

/// A part of a file between two lines that begin with `---`.
struct Chunk {
    range: Range<usize>,
    /// Whether such a line stands before it.
    marked: bool,
    /// What stands behind the `---` on that line, where nothing may.
    behind: Option<Range<usize>>,
}

/// The documents of a file as kubectl splits it: at lines that begin with
/// `---`, before anything is parsed. A byte order mark may begin each, as files that
/// were put together have it.
fn chunks(text: &str) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let begin = |start: usize, marked, behind| {
        let rest = text.get(start..).unwrap_or_default();
        let start = text.len() - rest.strip_prefix(MARK).unwrap_or(rest).len();
        Chunk {
            range: start..text.len(),
            marked,
            behind,
        }
    };
    let mut last = begin(0, false, None);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if let Some(rest) = line.strip_prefix("---") {
            if last.marked || at > last.range.start {
                last.range.end = at.max(last.range.start);
                chunks.push(last);
            }
            let wrong = rest.trim();
            let wrong = (!wrong.is_empty() && !wrong.starts_with('#')).then(|| {
                let start = end - rest.trim_start().len();
                start..start + wrong.len()
            });
            // What stands there is still looked at.
            let start = wrong.as_ref().map_or(end, |wrong| wrong.start);
            last = begin(start, true, wrong);
        }
        at = end;
    }
    chunks.push(last);
    chunks
}

/// What kubectl takes for a document each: of a file that begins with JSON, one
/// value after the other, and what is no JSON as YAML again.
fn values(text: &str, chunk: Range<usize>, marked: bool) -> Vec<Range<usize>> {
    let source = text.get(chunk.clone()).unwrap_or_default();
    let mut start = chunk.start;
    let mut values = Vec::new();
    if !marked && source.trim_start().starts_with('{') {
        let mut stream = serde_json::Deserializer::from_str(source).into_iter::<IgnoredAny>();
        while let Some(Ok(_)) = stream.next() {
            let end = chunk.start + stream.byte_offset();
            values.push(start..end);
            start = end;
        }
    }
    let rest = text.get(start..chunk.end).unwrap_or_default();
    if values.is_empty() || !rest.trim().is_empty() {
        values.push(start..chunk.end);
    }
    values
}

fn tabs_to_spaces(json: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    let spaced = json.chars().map(|c| match c {
        '\t' if !quoted => ' ',
        _ => {
            if c == '"' && !escaped {
                quoted = !quoted;
            }
            escaped = quoted && c == '\\' && !escaped;
            c
        }
    });
    spaced.collect()
}

struct Builder<'a> {
    base: usize,
    end: usize,
    nodes: &'a mut usize,
    anchors: BTreeMap<usize, Node>,
    twice: Vec<Unread>,
}

/// A list or map that is being read.
struct Open {
    anchor: usize,
    start: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        key: Option<Key>,
    },
}

/// A key that waits for its value.
struct Key {
    name: Option<String>,
    span: Range<usize>,
}

impl Builder<'_> {
    fn read(&mut self, source: &str, read: &mut Vec<Result<Document, Unread>>) {
        let mut open: Vec<Open> = Vec::new();
        let mut root = None;
        for event in Parser::new_from_str(source) {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    let at = self.offset(error.marker().byte_offset(), error.marker().index());
                    read.push(Err(Unread {
                        span: at..at,
                        message: error.info(),
                    }));
                    return;
                }
            };
            match self.take(event, &span, &mut open, &mut root) {
                Ok(false) => {}
                Ok(true) => {
                    self.anchors.clear();
                    let twice = std::mem::take(&mut self.twice);
                    if let Some(root) = root.take() {
                        read.push(Ok(Document { root, twice }));
                    }
                }
                Err(fault) => {
                    read.push(Err(fault));
                    return;
                }
            }
        }
    }

    /// Takes in an event; true at the end of a document.
    fn take(
        &mut self,
        event: Event<'_>,
        span: &Span,
        open: &mut Vec<Open>,
        root: &mut Option<Node>,
    ) -> Result<bool, Unread> {
        let range = self.range(span);
        let (node, anchor, merges) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
                let value =
                    scalar::resolve(&text, plain, tag.as_deref()).map_err(|message| Unread {
                        span: range.clone(),
                        message: format!("{text:?} {message}"),
                    })?;
                let merges = plain && text == "<<";
                (leaf(value, range), anchor, merges)
            }
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return Err(Unread {
                        span: range,
                        message: "an alias cannot stand inside of what it names".to_owned(),
                    });
                };
                let node = match node.value {
                    // Faults inside are shown where they are written.
                    Tree::List(_) | Tree::Map(_) => node,
                    _ => Node {
                        span: range,
                        ..node
                    },
                };
                (node, 0, false)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(open, anchor, range, Content::List(Vec::new()))?;
                return Ok(false);
            }
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Map {
                    entries: Vec::new(),
                    key: None,
                };
                self.open(open, anchor, range, content)?;
                return Ok(false);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(done) = open.pop() else {
                    return Ok(false);
                };
                let span = done.start..range.end.max(done.start);
                let value = match done.content {
                    Content::List(elements) => Tree::List(elements),
                    Content::Map { entries, .. } => {
                        self.find_twice(&entries);
                        Tree::Map(entries)
                    }
                };
                (collection(value, span), done.anchor, false)
            }
            Event::DocumentEnd => return Ok(true),
            _ => return Ok(false),
        };
        self.place(node, anchor, merges, open, root)?;
        Ok(false)
    }

    fn open(
        &self,
        open: &mut Vec<Open>,
        anchor: usize,
        range: Range<usize>,
        content: Content,
    ) -> Result<(), Unread> {
        if open.len() >= MAX_DEPTH {
            return Err(self.too_deep(range));
        }
        open.push(Open {
            anchor,
            start: range.start,
            content,
        });
        Ok(())
    }

    /// Puts a value where it belongs: into the list or map that is open.
    fn place(
        &mut self,
        node: Node,
        anchor: usize,
        merges: bool,
        open: &mut [Open],
        root: &mut Option<Node>,
    ) -> Result<(), Unread> {
        if open.len() + node.depth > MAX_DEPTH {
            return Err(self.too_deep(node.span));
        }
        *self.nodes += node.size;
        if *self.nodes > MAX_NODES {
            return Err(Unread {
                span: node.span,
                message: format!("the file has more than {MAX_NODES} values with its aliases"),
            });
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(last) = open.last_mut() else {
            *root = Some(node);
            return Ok(());
        };
        match &mut last.content {
            Content::List(elements) => elements.push(node),
            Content::Map { entries, key } => match key.take() {
                None => {
                    *key = Some(Key {
                        name: if merges { None } else { Some(name(&node)?) },
                        span: node.span,
                    });
                }
                Some(Key {
                    name: Some(name),
                    span,
                }) => entries.push(Entry {
                    key: name,
                    key_span: span,
                    value: node,
                    merged: false,
                }),
                Some(Key { name: None, span }) => merge(entries, node, span)?,
            },
        }
        Ok(())
    }

    fn too_deep(&self, span: Range<usize>) -> Unread {
        Unread {
            span,
            message: format!("is nested deeper than {MAX_DEPTH} levels"),
        }
    }

    /// kubectl takes the last of two equal keys and says nothing.
    fn find_twice(&mut self, entries: &[Entry]) {
        let mut seen = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let first = seen.insert(&entry.key, index);
            let first = first.and_then(|first| entries.get(first));
            if first.is_some_and(|first| !first.merged && !entry.merged) {
                self.twice.push(Unread {
                    span: entry.key_span.clone(),
                    message: format!(
                        "the key {:?} stands twice here, and all but the last are passed over",
                        entry.key
                    ),
                });
            }
        }
    }

    fn range(&self, span: &Span) -> Range<usize> {
        let start = self.offset(span.start.byte_offset(), span.start.index());
        let end = self.offset(span.end.byte_offset(), span.end.index());
        start..end.max(start)
    }

    fn offset(&self, bytes: Option<usize>, chars: usize) -> usize {
        (self.base + bytes.unwrap_or(chars)).min(self.end)
    }
}

fn leaf(value: Value, span: Range<usize>) -> Node {
    let value = match value {
        Value::Null => Tree::Null,
        Value::Bool(value) => Tree::Bool(value),
        Value::Number(number) => Tree::Number(number),
        Value::String(text) => Tree::Text(text),
        Value::Array(_) => Tree::List(Vec::new()),
        Value::Object(_) => Tree::Map(Vec::new()),
    };
    Node {
        value,
        span,
        depth: 0,
        size: 1,
    }
}

fn collection(value: Tree, span: Range<usize>) -> Node {
    let inner: Vec<&Node> = match &value {
        Tree::List(elements) => elements.iter().collect(),
        Tree::Map(entries) => entries.iter().map(|entry| &entry.value).collect(),
        _ => Vec::new(),
    };
    let depth = 1 + inner.iter().map(|node| node.depth).max().unwrap_or(0);
    let size = 1 + inner.iter().map(|node| node.size).sum::<usize>();
    Node {
        value,
        span,
        depth,
        size,
    }
}

/// The key that a value makes in JSON.
fn name(node: &Node) -> Result<String, Unread> {
    match &node.value {
        Tree::Text(text) => Ok(text.clone()),
        Tree::Bool(value) => Ok(value.to_string()),
        Tree::Number(number) => Ok(number.to_string()),
        Tree::Null | Tree::List(_) | Tree::Map(_) => Err(Unread {
            span: node.span.clone(),
            message: "a key must be a string".to_owned(),
        }),
    }
}

/// Takes over the entries of another map, or of several, as `<<` asks for.
/// To kubectl they count more than what stands before, and less than what stands
/// after; of several maps the first counts most.
fn merge(entries: &mut Vec<Entry>, from: Node, key_span: Range<usize>) -> Result<(), Unread> {
    let wrong = || Unread {
        span: key_span.clone(),
        message: "<< takes a map or a list of maps".to_owned(),
    };
    let maps = match from.value {
        Tree::Map(_) => vec![from],
        Tree::List(maps) => maps,
        _ => return Err(wrong()),
    };
    let before = entries.len();
    for map in maps {
        let Tree::Map(merged) = map.value else {
            return Err(wrong());
        };
        for entry in merged {
            let mut here = entries.iter().skip(before);
            if here.all(|known| known.key != entry.key) {
                entries.push(Entry {
                    merged: true,
                    ..entry
                });
            }
        }
    }
    Ok(())
}
