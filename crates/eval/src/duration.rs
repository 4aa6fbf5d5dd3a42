//! How long what is left to measure takes, said before anything is touched.

/// Says what is to be measured, and about how long that takes: this many milliseconds.
pub fn say(what: &str, ms: u64) {
    eprintln!("{}", words(what, ms));
}

fn words(what: &str, ms: u64) -> String {
    let minutes = counted(ms.div_ceil(60_000), "minute");
    format!("{what}: about {minutes}, more where the machine is not quiet")
}

/// So many of these, as one says it.
pub fn counted(count: u64, of: &str) -> String {
    match (count, of.ends_with("ch")) {
        (1, _) => format!("1 {of}"),
        (_, true) => format!("{count} {of}es"),
        (_, false) => format!("{count} {of}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_begun_ones_and_one_is_no_more() {
        let what = counted(2, "switch");
        assert_eq!(
            words(&what, 60_001),
            "2 switches: about 2 minutes, more where the machine is not quiet"
        );
        assert!(words("", 1).contains("about 1 minute, "));
        assert_eq!(counted(1, "switch"), "1 switch");
        assert_eq!(counted(0, "wakeup"), "0 wakeups");
    }
}
