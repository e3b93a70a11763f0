//! Resource quantities, compared by value.
//!
//! Parses the quantity grammar of the Kubernetes API (`100m`, `0.1`, `1Gi`,
//! `1e3`) exactly, in integers; like the API server it rounds up, away from
//! zero, below one nano. What it cannot parse or hold stays as it is and is
//! compared literally by the caller; it never fails.

/// The API server keeps nothing finer than one nano.
const MIN_EXPONENT: i32 = -9;

/// A decimal number `magnitude / 10^places`, `places` as small as it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    magnitude: i128,
    places: usize,
}

/// The same quantity as a plain decimal number, or `None` if `text` is not a
/// quantity that this module can hold exactly.
pub(super) fn canonical(text: &str) -> Option<String> {
    parse(text).map(render)
}

fn parse(text: &str) -> Option<Decimal> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa
            .checked_mul(10)?
            .checked_add(i128::from(digit - b'0'))?;
    }
    let (binary, decimal) = scale(suffix)?;
    mantissa = mantissa.checked_mul(1_i128.checked_shl(binary)?)?;
    let exponent = decimal.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let (magnitude, places) = reduce(mantissa, exponent)?;
    Some(Decimal {
        negative: negative && magnitude != 0,
        magnitude,
        places,
    })
}

/// A suffix as powers of two and of ten.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => (0, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// `magnitude * 10^exponent` as a magnitude and decimal places, rounded up at one nano.
fn reduce(mut magnitude: i128, mut exponent: i32) -> Option<(i128, usize)> {
    if magnitude == 0 {
        return Some((0, 0));
    }
    while exponent > 0 {
        magnitude = magnitude.checked_mul(10)?;
        exponent -= 1;
    }
    let mut inexact = false;
    while exponent < MIN_EXPONENT {
        if magnitude == 0 {
            exponent = MIN_EXPONENT;
            break;
        }
        inexact |= magnitude % 10 != 0;
        magnitude /= 10;
        exponent += 1;
    }
    magnitude += i128::from(inexact);
    while exponent < 0 && magnitude % 10 == 0 {
        magnitude /= 10;
        exponent += 1;
    }
    Some((magnitude, usize::try_from(-exponent).ok()?))
}

fn render(number: Decimal) -> String {
    let sign = if number.negative { "-" } else { "" };
    if number.places == 0 {
        return format!("{sign}{}", number.magnitude);
    }
    let digits = format!("{:0>width$}", number.magnitude, width = number.places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - number.places);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn different_spellings_of_one_quantity_are_equal() {
        for group in [
            vec![
                "1",
                "1000m",
                "1.0",
                "01",
                "+1",
                "1e0",
                "1000000u",
                "1000000000n",
                "0.001k",
                "10E-1",
            ],
            vec!["0.1", "100m", ".1", "1e-1"],
            vec!["1Gi", "1024Mi", "1073741824", "1048576Ki", "1073741824000m"],
            vec!["1.5Gi", "1536Mi"],
            vec!["1M", "1e6", "1000k", "1E6"],
            vec!["1E", "1000P", "1e18"],
            vec!["0", "0m", "0Gi", "-0", "0.000"],
            vec!["0.0000000001", "1n"],
            vec!["-0.5", "-500m"],
        ] {
            let first = canonical(group[0]);
            assert!(first.is_some(), "{}", group[0]);
            for other in &group {
                assert_eq!(canonical(other), first, "{other}");
            }
        }
    }

    #[test]
    fn different_quantities_differ() {
        let all = ["1", "1k", "1Ki", "1m", "10", "100m", "1M", "1Mi", "-1"];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(canonical(a), canonical(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_left_to_the_caller() {
        for text in [
            "",
            "-",
            ".",
            "1.2.3",
            "abc",
            "1 Gi",
            "1gi",
            "1K",
            "1e",
            "1e1.5",
            "1ki",
            "--1",
            "1Gi ",
            "1e2147483647",
            "1e99999999999",
            "99999999999999999999999999999999999999999999",
            "ü",
            "1ü",
        ] {
            assert_eq!(canonical(text), None, "{text:?}");
        }
    }

    #[test]
    fn canonical_text_is_plain() {
        assert_eq!(canonical("1500m").as_deref(), Some("1.5"));
        assert_eq!(canonical("5n").as_deref(), Some("0.000000005"));
        assert_eq!(canonical("2k").as_deref(), Some("2000"));
        assert_eq!(canonical("-250m").as_deref(), Some("-0.25"));
    }

    proptest! {
        #[test]
        fn canonical_text_is_a_fixed_point(n in any::<i64>(), suffix in "(n|u|m||k|M|Ki|Mi|Gi)") {
            let once = canonical(&format!("{n}{suffix}")).unwrap();
            prop_assert_eq!(canonical(&once), Some(once.clone()));
        }

        #[test]
        fn a_thousand_smaller_units_are_one_larger(n in any::<i32>()) {
            let thousand = i64::from(n) * 1000;
            for (small, large) in [("n", "u"), ("u", "m"), ("m", ""), ("", "k"), ("k", "M"), ("M", "G"), ("G", "T")] {
                prop_assert_eq!(canonical(&format!("{thousand}{small}")), canonical(&format!("{n}{large}")));
            }
            let binary = i64::from(n) * 1024;
            for (small, large) in [("", "Ki"), ("Ki", "Mi"), ("Mi", "Gi"), ("Gi", "Ti"), ("Ti", "Pi")] {
                prop_assert_eq!(canonical(&format!("{binary}{small}")), canonical(&format!("{n}{large}")));
            }
        }

        #[test]
        fn distinct_numbers_of_one_unit_stay_distinct(a in any::<i64>(), b in any::<i64>(), suffix in "(n|m||k|Mi)") {
            prop_assert_eq!(canonical(&format!("{a}{suffix}")) == canonical(&format!("{b}{suffix}")), a == b);
        }

        #[test]
        fn whatever_parses_is_a_fixed_point(text in "([-+]?[0-9.]{1,40}[numkKMGTPEei]{0,2}-?[0-9]{0,4}|.{0,40})") {
            if let Some(once) = canonical(&text) {
                prop_assert_eq!(canonical(&once), Some(once.clone()));
            }
        }
    }
}
