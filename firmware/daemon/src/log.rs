//! Log lines on standard error.
//!
//! What happens is an event of `tracing`, with a level and fields; `subscriber.rs` makes
//! the lines. Messages of a command to its user are written with [`line()`] and has no level.
//!
//! A separate thread writes them: the reader may be slow, stop reading or disconnect,
//! and none of that may block or end the box. Lines are counted and dropped while the
//! queue is full.

mod subscriber;
pub(crate) mod throttle;

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use subscriber::LogSubscriber;
pub(crate) use subscriber::NOTE;
use trivet_config::LogSettings;

use crate::clock;

/// Limit of queued lines.
const LINES_WAITING_MAX: usize = 1024;

/// Longest sentence. Some contain text of agents and BMCs.
const LINE_CHARS_MAX: usize = 2000;

/// How long the program waits at its end for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum LogItem {
    Line(String),
    Flush(SyncSender<()>),
}

/// A queue of lines and its writer thread.
struct LogQueue {
    queue: SyncSender<LogItem>,
    dropped: &'static AtomicU64,
}

impl LogQueue {
    fn writing_to(out: impl Write + Send + 'static, left_out: &'static AtomicU64) -> Self {
        let (queue, items) = sync_channel(LINES_WAITING_MAX);
        // Without a thread no lines are written, and the box still works.
        let _ = std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || write(out, &items, left_out));
        Self {
            queue,
            dropped: left_out,
        }
    }

    fn line(&self, text: &str) {
        if self.queue.try_send(LogItem::Line(text.to_owned())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.try_send(LogItem::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

fn write(mut out: impl Write, items: &Receiver<LogItem>, left_out: &AtomicU64) {
    while let Ok(item) = items.recv() {
        match item {
            // A closed standard error is not an error of the box.
            LogItem::Line(line) => {
                let _ = writeln!(out, "{line}");
            }
            LogItem::Flush(done) => {
                let _ = out.flush();
                let _ = done.try_send(());
            }
        }
        let missing = left_out.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let _ = writeln!(out, "{}", EVENTS.dropped_line(missing));
        }
    }
}

/// A sentence of bounded length in one line: text from others cannot start a new line or
/// control a terminal.
fn sanitize(text: &str) -> String {
    let text = text.chars().take(LINE_CHARS_MAX);
    text.map(|character| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    })
    .collect()
}

fn stderr() -> &'static LogQueue {
    static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
    static LINES: OnceLock<LogQueue> = OnceLock::new();
    LINES.get_or_init(|| LogQueue::writing_to(std::io::stderr(), &LEFT_OUT))
}

static EVENTS: LogSubscriber = LogSubscriber::new(clock::wall_time, |line| stderr().line(line));

/// From now on events are written, as the settings say by default.
pub(crate) fn start() {
    // Only a second start in one process would fail.
    let _ = tracing::subscriber::set_global_default(&EVENTS);
}

/// From now on events are written as these settings say.
pub(crate) fn configure(settings: LogSettings) {
    EVENTS.set(settings);
}

/// Writes one line, without level and fields; never blocks.
pub(crate) fn line(text: &str) {
    stderr().line(&sanitize(text));
}

/// Waits a moment for the last lines to be written.
pub(crate) fn flush() {
    stderr().flush();
}

/// The text lines that `events` logs in this thread.
#[cfg(test)]
pub(crate) fn captured(events: impl FnOnce()) -> Vec<String> {
    subscriber::tests::lines(LogSettings::default(), events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Condvar, Mutex};

    /// Whether it has stopped, and what it read before.
    type PausedBuffer = Mutex<(bool, Vec<u8>)>;

    /// A reader that can stop reading.
    #[derive(Clone, Default)]
    struct PausableWriter(Arc<(PausedBuffer, Condvar)>);

    impl PausableWriter {
        fn stop(&self, stopped: bool) {
            self.0.0.lock().unwrap().0 = stopped;
            self.0.1.notify_all();
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.0.lock().unwrap().1.clone()).unwrap()
        }
    }

    impl Write for PausableWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let guard = self.0.0.lock().unwrap();
            let mut guard = self.0.1.wait_while(guard, |writer| writer.0).unwrap();
            guard.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    struct BrokenPipeWriter;

    impl Write for BrokenPipeWriter {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_reader_that_stops_reading_blocks_no_caller() {
        static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
        let writer = PausableWriter::default();
        writer.stop(true);
        let lines = LogQueue::writing_to(writer.clone(), &LEFT_OUT);
        for number in 0..2 * LINES_WAITING_MAX {
            lines.line(&format!("line {number}"));
        }
        writer.stop(false);
        // The flush itself needs space in the queue, so wait until it has some again.
        while !writer.text().contains("were dropped here") {
            lines.flush();
        }
        let text = writer.text();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(!text.contains("line 2047"), "the queue has its bound");
    }

    #[test]
    fn a_closed_reader_does_not_end_the_box() {
        static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
        let lines = LogQueue::writing_to(BrokenPipeWriter, &LEFT_OUT);
        for _ in 0..3 {
            lines.line("x");
            lines.flush();
        }
        assert_eq!(LEFT_OUT.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_line_stays_one_line_and_has_no_terminal_control_characters() {
        assert_eq!(sanitize("a\nwarning b\u{1b}[2J"), "a warning b [2J");
        assert_eq!(sanitize(&"x".repeat(9999)).len(), LINE_CHARS_MAX);
    }
}
