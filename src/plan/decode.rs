//! From the stored spec to the wire type, whatever is stored.
//!
//! A value of the wrong type is named and taken out, and reading starts again,
//! so that all such faults are found. Unknown fields are passed over: they may
//! come from a newer schema.

use serde::de::{
    Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor,
    value::{MapDeserializer, SeqDeserializer},
};
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};

use super::{ViolationKind, faults::Faults};
use crate::api::ReleasePlanSpec;

/// Values of the wrong type that are named one by one.
const ROUNDS: usize = 64;

/// Reads the spec; what cannot be read is recorded as broken and left out.
pub(super) fn decode(spec: &Value, faults: &mut Faults) -> ReleasePlanSpec {
    match spec {
        Value::Object(_) => {}
        Value::Null => {
            faults.add_broken(ViolationKind::Required, "spec", "says what is released");
            return ReleasePlanSpec::default();
        }
        other => {
            faults.add_broken(ViolationKind::Invalid, "spec", not("an object", other));
            return ReleasePlanSpec::default();
        }
    }
    let mut rest = spec.clone();
    for _ in 0..ROUNDS {
        let error = match serde_path_to_error::deserialize(Strict(&rest)) {
            Ok(wire) => return wire,
            Err(error) => error,
        };
        let steps = steps(error.path());
        let path = steps.iter().fold("spec".to_owned(), |path, step| {
            path + &match step {
                Step::Field(name) => format!(".{name}"),
                Step::Element(index) => format!("[{index}]"),
            }
        });
        let expected = Expected::read(&error.inner().to_string());
        let Some(found) = take_out(&mut rest, &steps, &expected) else {
            break;
        };
        faults.add_broken(expected.kind(), path, expected.message(&found));
    }
    faults.add_broken(
        ViolationKind::Invalid,
        "spec",
        "has too many values of the wrong type; correct those that are named, then try again",
    );
    ReleasePlanSpec::default()
}

/// "must be an object, not the number 5".
pub(super) fn not(expected: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => format!("the number {value}"),
        Value::String(value) => format!("the string {}", quoted(value)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    format!("must be {expected}, not {found}")
}

/// The text in quotes, cut where it would fill the screen.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 64;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

enum Step {
    Field(String),
    Element(usize),
}

fn steps(path: &Path) -> Vec<Step> {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Map { key } => Some(Step::Field(key.clone())),
            Segment::Seq { index } => Some(Step::Element(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

/// What should have stood there, read from serde's message.
enum Expected {
    Object,
    OneOf(Vec<String>),
    Integer,
    Other(&'static str),
}

impl Expected {
    fn read(message: &str) -> Self {
        let expected = message
            .rsplit_once(", expected ")
            .map_or("", |(_, expected)| expected);
        if message.starts_with("unknown variant") {
            let names = expected.split('`').skip(1).step_by(2);
            return Self::OneOf(names.map(ToOwned::to_owned).collect());
        }
        match expected {
            "i32" => Self::Integer,
            "a sequence" => Self::Other("a list"),
            "a boolean" => Self::Other("true or false"),
            "a string" => Self::Other("a string"),
            text if text.starts_with("enum ") => Self::Other("a string"),
            text if text.starts_with("struct ") => Self::Object,
            _ => Self::Other("of another type"),
        }
    }

    const fn kind(&self) -> ViolationKind {
        match self {
            Self::OneOf(_) => ViolationKind::NotSupported,
            Self::Object | Self::Integer | Self::Other(_) => ViolationKind::Invalid,
        }
    }

    fn message(&self, found: &Value) -> String {
        match self {
            Self::Object => not("an object", found),
            Self::OneOf(names) => {
                let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
                let found = found.as_str().map(quoted).unwrap_or_default();
                format!("{found}: supported values: {}", names.join(", "))
            }
            Self::Integer if found.is_i64() || found.is_u64() => {
                format!("{found} is out of range")
            }
            Self::Integer => not("a whole number", found),
            Self::Other(expected) => not(expected, found),
        }
    }
}

/// Takes the value out, or puts an empty one in its place where the path of its
/// neighbours or the choice of a one-of depends on its being there. What is
/// said about the stand-in is dropped with the broken path.
fn take_out(spec: &mut Value, steps: &[Step], expected: &Expected) -> Option<Value> {
    let (last, parents) = steps.split_last()?;
    let mut parent = spec;
    for step in parents {
        parent = match step {
            Step::Field(name) => parent.get_mut(name),
            Step::Element(index) => parent.get_mut(index),
        }?;
    }
    let is_object = matches!(expected, Expected::Object);
    match last {
        Step::Field(name) if is_object => {
            Some(std::mem::replace(parent.get_mut(name)?, empty_object()))
        }
        Step::Field(name) => parent.as_object_mut()?.remove(name),
        Step::Element(index) => {
            let stand_in = if is_object {
                empty_object()
            } else {
                Value::String(String::new())
            };
            Some(std::mem::replace(parent.get_mut(index)?, stand_in))
        }
    }
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

/// Reads JSON as the API server does: objects from objects only and enums from
/// strings only, where serde would take lists and objects as well.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Value);

impl<'de> IntoDeserializer<'de, serde_json::Error> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.0.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(Strict)))
            }
            other => other.deserialize_seq(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Object(fields) => visitor.visit_map(MapDeserializer::new(
                fields
                    .iter()
                    .map(|(key, value)| (key.as_str(), Strict(value))),
            )),
            _ => Err(Self::Error::invalid_type(
                Unexpected::Other("another type"),
                &visitor,
            )),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::String(_) => self.0.deserialize_enum(name, variants, visitor),
            _ => Err(Self::Error::invalid_type(
                Unexpected::Other("another type"),
                &visitor,
            )),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct newtype_struct tuple tuple_struct map identifier ignored_any
    }
}
