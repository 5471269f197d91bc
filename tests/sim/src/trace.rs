//! The events, line by line: always as a running hash, as text on request.
//!
//! Two runs of one seed must give the same hash; this checks replay.

use std::fmt::{Arguments, Write as _};

use trivet_model::Tick;

/// FNV-1a, 64 bits: its offset basis and prime.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The lines so far.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: u64,
    line: String,
    text: Option<String>,
}

impl Trace {
    /// An empty trace that keeps its text or not.
    pub fn new(keep_text: bool) -> Self {
        Self {
            hash: BASIS,
            lines: 0,
            line: String::new(),
            text: keep_text.then(String::new),
        }
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, now: Tick, message: Arguments<'_>) {
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = writeln!(self.line, "{:>9} {message}", now.0);
        self.hash = fnv1a(self.hash, self.line.as_bytes());
        self.lines += 1;
        if let Some(text) = &mut self.text {
            text.push_str(&self.line);
        }
    }

    /// The hash of all lines.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The lines, if they were kept.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

/// A short hash of bytes that are too long to show.
pub(crate) fn short_hash(bytes: &[u8]) -> u32 {
    let hash = fnv1a(BASIS, bytes);
    (hash ^ (hash >> 32)) as u32
}

fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_time_text_and_order() {
        let run = |lines: &[(u64, &str)]| {
            let mut trace = Trace::new(true);
            for (at, text) in lines {
                trace.line(Tick(*at), format_args!("{text}"));
            }
            (trace.hash(), trace.lines())
        };
        assert_eq!(run(&[(1, "a"), (2, "b")]), run(&[(1, "a"), (2, "b")]));
        assert_ne!(run(&[(1, "a"), (2, "b")]), run(&[(1, "a"), (3, "b")]));
        assert_ne!(run(&[(1, "a"), (1, "b")]), run(&[(1, "b"), (1, "a")]));
    }

    #[test]
    fn text_is_kept_only_on_request() {
        assert_eq!(Trace::new(false).text(), None);
        let mut trace = Trace::new(true);
        trace.line(Tick(7), format_args!("box on"));
        assert_eq!(trace.text(), Some("        7 box on\n"));
    }
}
