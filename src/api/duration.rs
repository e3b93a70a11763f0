//! Gateway API duration strings (GEP-2257): `10m`, `1h30m`, `500ms`, `0s`.

use std::{fmt, str::FromStr, time::Duration};

/// A duration as the Gateway API writes it: up to four groups of up to five
/// digits and a unit out of `h`, `m`, `s`, `ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayDuration(Duration);

/// Why a string is not a Gateway API duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as \"30s\", \"10m\" or \"1h30m\"")]
pub struct InvalidDuration(pub String);

impl GatewayDuration {
    /// Pattern of the format, as used in the schema.
    pub const PATTERN: &'static str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";

    /// The duration itself.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for GatewayDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for GatewayDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let invalid = || InvalidDuration(text.to_owned());
        let mut rest = text;
        let mut millis: u64 = 0;
        let mut groups = 0;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            groups += 1;
            if !(1..=5).contains(&digits) || groups > 4 {
                return Err(invalid());
            }
            let (number, tail) = rest.split_at(digits);
            let number: u64 = number.parse().map_err(|_| invalid())?;
            let (unit, tail) = if let Some(tail) = tail.strip_prefix("ms") {
                (1, tail)
            } else if let Some(tail) = tail.strip_prefix('s') {
                (1_000, tail)
            } else if let Some(tail) = tail.strip_prefix('m') {
                (60_000, tail)
            } else if let Some(tail) = tail.strip_prefix('h') {
                (3_600_000, tail)
            } else {
                return Err(invalid());
            };
            millis += number * unit;
            rest = tail;
        }
        if groups == 0 {
            return Err(invalid());
        }
        Ok(Self(Duration::from_millis(millis)))
    }
}

impl fmt::Display for GatewayDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, name) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
            if millis >= unit {
                write!(f, "{}{name}", millis / unit)?;
                millis %= unit;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_forms_of_the_gateway_api() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1h2m3s4ms", 3_723_004),
        ] {
            let parsed: GatewayDuration = text.parse().unwrap();
            assert_eq!(parsed.get(), Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "1",
            "s",
            "-1s",
            "1.5s",
            "1d",
            "123456s",
            "1h1h1h1h1h",
            "10 m",
            "5M",
            "1us",
        ] {
            assert!(text.parse::<GatewayDuration>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn display_is_read_back(millis in 0u64..99_999 * 3_600_000) {
            let duration = GatewayDuration(Duration::from_millis(millis));
            prop_assert_eq!(duration.to_string().parse::<GatewayDuration>(), Ok(duration));
        }
    }
}
