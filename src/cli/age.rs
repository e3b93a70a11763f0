//! Lengths of time, as kubectl writes them: the two largest units at most.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// How long ago something was, or how long it took. What lies in the future, by
/// another machine's clock, is `0s`.
#[must_use]
pub fn age(from: Timestamp, to: Timestamp) -> String {
    span(Duration::try_from(to.duration_since(from)).unwrap_or_default())
}

/// A length of time.
#[must_use]
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: u64, unit: &str, small: u64, of: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{of}")
        }
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short_and_exact_enough() {
        let zero = Timestamp::UNIX_EPOCH;
        let after = |seconds| age(zero, Timestamp::from_second(seconds).unwrap());
        assert_eq!(after(-5), "0s");
        assert_eq!(after(119), "119s");
        assert_eq!(after(150), "2m30s");
        assert_eq!(after(3_599), "59m");
        assert_eq!(after(10_860), "3h1m");
        assert_eq!(after(90_000), "25h");
        assert_eq!(after(259_200), "3d");
        assert_eq!(after(864_000), "10d");
    }
}
