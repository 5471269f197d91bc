//! Lines for people, on standard error.
//!
//! A thread of its own writes them: whoever reads them may be slow, stop reading
//! or go away, and none of that may hold up or end the box. Lines that find the
//! queue full are counted and left out.

pub(crate) mod throttle;

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait to be written.
const LINES_WAITING_MAX: usize = 1024;

/// Longest line. Words of agents and BMCs stand in some of them.
const LINE_CHARS_MAX: usize = 2000;

/// How long the end of the program waits for its last lines.
const LAST_WORDS: Duration = Duration::from_secs(1);

enum Item {
    Line(String),
    Flush(SyncSender<()>),
}

/// A queue of lines and the thread behind it.
struct Lines {
    queue: SyncSender<Item>,
    left_out: &'static AtomicU64,
}

impl Lines {
    fn to(out: impl Write + Send + 'static, left_out: &'static AtomicU64) -> Self {
        let (queue, items) = sync_channel(LINES_WAITING_MAX);
        // Without a thread there are no lines, and the box still works.
        let _ = std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || write(out, &items, left_out));
        Self { queue, left_out }
    }

    fn line(&self, text: &str) {
        if self.queue.try_send(Item::Line(harmless(text))).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.try_send(Item::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(LAST_WORDS);
        }
    }
}

fn write(mut out: impl Write, items: &Receiver<Item>, left_out: &AtomicU64) {
    while let Ok(item) = items.recv() {
        match item {
            // Nobody may be there to read it, which is no failure of the box.
            Item::Line(line) => {
                let _ = writeln!(out, "{line}");
            }
            Item::Flush(done) => {
                let _ = out.flush();
                let _ = done.try_send(());
            }
        }
        let missing = left_out.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let _ = writeln!(out, "trivet: {missing} lines were left out here");
        }
    }
}

/// One line of bounded length: what others wrote cannot begin a line of its own
/// or speak to a terminal.
fn harmless(text: &str) -> String {
    text.chars()
        .take(LINE_CHARS_MAX)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

fn stderr() -> &'static Lines {
    static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| Lines::to(std::io::stderr(), &LEFT_OUT))
}

/// Says one line; never waits.
pub(crate) fn line(text: &str) {
    stderr().line(text);
}

/// Gives the last lines a moment to be written.
pub(crate) fn flush() {
    stderr().flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Condvar, Mutex};

    /// Whether it has stopped, and what came before.
    type Sheet = Mutex<(bool, Vec<u8>)>;

    /// A reader that can stop reading.
    #[derive(Clone, Default)]
    struct Paper(Arc<(Sheet, Condvar)>);

    impl Paper {
        fn stop(&self, stopped: bool) {
            self.0.0.lock().unwrap().0 = stopped;
            self.0.1.notify_all();
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.0.lock().unwrap().1.clone()).unwrap()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let guard = self.0.0.lock().unwrap();
            let mut guard = self.0.1.wait_while(guard, |paper| paper.0).unwrap();
            guard.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_reader_that_stops_reading_holds_nobody_up() {
        static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
        let paper = Paper::default();
        paper.stop(true);
        let lines = Lines::to(paper.clone(), &LEFT_OUT);
        for number in 0..2 * LINES_WAITING_MAX {
            lines.line(&format!("line {number}"));
        }
        paper.stop(false);
        // Room again, sooner or later: the flush itself needs a place in the queue.
        while !paper.text().contains("were left out here") {
            lines.flush();
        }
        let text = paper.text();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(!text.contains("line 2047"), "the queue has its bound");
    }

    #[test]
    fn a_reader_that_went_away_ends_nothing() {
        static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
        let lines = Lines::to(Gone, &LEFT_OUT);
        for _ in 0..3 {
            lines.line("x");
            lines.flush();
        }
        assert_eq!(LEFT_OUT.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_line_stays_one_line_and_does_not_speak_to_the_terminal() {
        assert_eq!(harmless("a\nwarning b\u{1b}[2J"), "a warning b [2J");
        assert_eq!(harmless(&"x".repeat(9999)).len(), LINE_CHARS_MAX);
    }
}
