//! What a YAML scalar means to kubectl.
//!
//! kubectl reads YAML 1.1: `yes` is true there and `017` is fifteen. What it
//! sends is JSON, so a number without a fraction arrives as an integer however
//! it was written. Whoever judges the file has to read it in the same way.

use k8s_openapi::ByteString;
use serde::Deserialize as _;
use serde_json::{Number, Value};

/// What stands before a core tag.
const CORE: &str = "tag:yaml.org,2002:";

/// Reads a scalar. `plain` says that it is not quoted; `tag` is an explicit one.
///
/// # Errors
/// Why there is no such value in JSON.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&str>) -> Result<Value, String> {
    let wanted = match tag {
        None if plain => return plain_value(text),
        None | Some("!") => return Ok(Value::String(text.to_owned())),
        // A tag of somebody's own has no meaning here and changes nothing.
        Some(tag) => match tag.strip_prefix(CORE) {
            None | Some("str") => return Ok(Value::String(text.to_owned())),
            Some("binary") => return binary(text),
            Some(name) => name,
        },
    };
    let value = plain_value(text)?;
    let fits = match &value {
        Value::Null => wanted == "null",
        Value::Bool(_) => wanted == "bool",
        Value::Number(number) => wanted == "float" || (wanted == "int" && !number.is_f64()),
        Value::String(_) => wanted == "timestamp",
        Value::Array(_) | Value::Object(_) => false,
    };
    if fits {
        Ok(value)
    } else {
        Err(format!("cannot be read as !!{wanted}"))
    }
}

/// The text that stands there in base64, which may go over several lines.
fn binary(text: &str) -> Result<Value, String> {
    let code = Value::String(text.replace(['\r', '\n'], ""));
    let bytes = ByteString::deserialize(&code);
    let bytes = bytes.map_err(|_| "cannot be read as !!binary: it is no base64".to_owned())?;
    Ok(Value::String(
        String::from_utf8_lossy(&bytes.0).into_owned(),
    ))
}

fn plain_value(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ => match text.trim_start_matches(['+', '-']) {
            ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => {
                return Err("is no number that JSON has".to_owned());
            }
            _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
        },
    })
}

fn number(text: &str) -> Option<Number> {
    let first = text.chars().next()?;
    if first == '.' {
        return float(text);
    }
    if !first.is_ascii_digit() && first != '+' && first != '-' {
        return None;
    }
    let text = text.replace('_', "");
    integer(&text).or_else(|| float(&text))
}

fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(digits) = lower.strip_prefix("0x") {
        (16, digits)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (8, digits)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (2, digits)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, lower.trim_start_matches('0'))
    } else {
        (10, lower.as_str())
    };
    let magnitude = match digits {
        // Zeros alone are left where the octal prefix was all there was.
        "" if radix == 8 && !lower.starts_with("0o") => 0,
        digits if digits.starts_with(['+', '-']) => return None,
        digits => u64::from_str_radix(digits, radix).ok()?,
    };
    if !negative {
        return Some(magnitude.into());
    }
    let value = -i128::from(magnitude);
    i64::try_from(value).ok().map(Number::from)
}

/// A decimal number with or without a fraction. What has none is an integer in
/// the JSON that is sent, as long as it can be written without an exponent.
fn float(text: &str) -> Option<Number> {
    const EXPONENT_FROM: f64 = 1e21;
    let decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !text.contains(|c: char| c.is_ascii_digit()) || !text.chars().all(decimal) {
        return None;
    }
    let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
    if value.fract() == 0.0 && value.abs() < EXPONENT_FROM {
        let whole = format!("{value:.0}");
        let whole = if whole == "-0" { "0" } else { &whole };
        let signed = whole.parse::<i64>().ok().map(Number::from);
        if let Some(number) = signed.or_else(|| whole.parse::<u64>().ok().map(Number::from)) {
            return Some(number);
        }
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Each pair was read by kubectl itself.
    #[test]
    fn plain_scalars_mean_what_they_mean_to_kubectl() {
        for (text, value) in [
            ("yes", json!(true)),
            ("y", json!(true)),
            ("on", json!(true)),
            ("Off", json!(false)),
            ("tRUE", json!("tRUE")),
            ("~", json!(null)),
            ("Null", json!(null)),
            ("nULL", json!("nULL")),
            ("", json!(null)),
            ("0o17", json!(15)),
            ("017", json!(15)),
            ("08", json!(8)),
            ("0x1F", json!(31)),
            ("0x", json!("0x")),
            ("-0x1f", json!(-31)),
            ("0b11", json!(3)),
            ("-0b11", json!(-3)),
            ("1_000", json!(1000)),
            ("1__0", json!(10)),
            ("1_0.5_0", json!(10.5)),
            ("+12", json!(12)),
            ("-0", json!(0)),
            ("0", json!(0)),
            ("00", json!(0)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            ("1.", json!(1)),
            (".5", json!(0.5)),
            ("-.5e-3", json!(-0.0005)),
            ("0.1.2", json!("0.1.2")),
            ("190:20:30", json!("190:20:30")),
            ("2001-01-01", json!("2001-01-01")),
            ("=", json!("=")),
            ("99999999999999999999999", json!(1e23)),
            ("1e400", json!("1e400")),
            ("-", json!("-")),
            ("+-1", json!("+-1")),
            ("1e", json!("1e")),
            ("10m", json!("10m")),
            ("00017", json!(15)),
            ("-017", json!(-15)),
            ("-08", json!(-8)),
            ("018.5", json!(18.5)),
            ("0o", json!("0o")),
            ("0b", json!("0b")),
            ("0B11", json!(3)),
            ("0X1f", json!(31)),
            ("1.5.e", json!("1.5.e")),
            (".5e", json!(".5e")),
            ("1e3_0", json!(1e30)),
            ("inf", json!("inf")),
            ("nan", json!("nan")),
        ] {
            assert_eq!(resolve(text, true, None), Ok(value), "{text}");
        }
        assert!(resolve(".inf", true, None).is_err());
        assert!(resolve("-.Inf", true, None).is_err());
    }

    #[test]
    fn quotes_and_tags_decide_before_the_form_does() {
        assert_eq!(resolve("5", false, None), Ok(json!("5")));
        let tag = |name: &str| format!("{CORE}{name}");
        assert_eq!(resolve("5", true, Some(&tag("str"))), Ok(json!("5")));
        assert_eq!(resolve("5", false, Some(&tag("int"))), Ok(json!(5)));
        assert_eq!(resolve("bar", true, Some("!foo")), Ok(json!("bar")));
        for (code, value) in [
            ("aGk=", "hi"),
            ("aG\nk=\n", "hi"),
            ("", ""),
            ("/w==", "\u{fffd}"),
        ] {
            let read = resolve(code, true, Some(&tag("binary")));
            assert_eq!(read, Ok(json!(value)), "{code:?}");
        }
        for code in ["aGk", "aG k=", "a-_="] {
            assert!(resolve(code, true, Some(&tag("binary"))).is_err(), "{code}");
        }
        assert_eq!(
            resolve("five", true, Some(&tag("int"))),
            Err("cannot be read as !!int".to_owned())
        );
    }
}
