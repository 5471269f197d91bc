//! From events of `tracing` to log lines: sentences, or JSON objects with their fields.
//!
//! An event has a message, which is a whole sentence, and fields with the same facts for
//! programs. In text only the message is written. A note of a node or of the box has the
//! target [`NOTE`] and begins with its time and the name of its node, so that a text line
//! can be found by both.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use trivet_config::{LogFormat, LogLevel, LogSettings};
use trivet_model::UnixMs;

use super::sanitize;

/// The target of events that are notes, with the fields `at` and `node`.
pub(crate) const NOTE: &str = "note";

/// The field of the name of a note's node, or of the box.
const NODE: &str = "node";

/// The field of a note's time.
const AT: &str = "at";

/// Writes events as lines.
pub(super) struct LogSubscriber {
    json: AtomicBool,
    level: AtomicU8,
    now: fn() -> UnixMs,
    write: fn(&str),
}

impl LogSubscriber {
    pub(super) const fn new(now: fn() -> UnixMs, write: fn(&str)) -> Self {
        Self {
            json: AtomicBool::new(false),
            level: AtomicU8::new(LogLevel::Info as u8),
            now,
            write,
        }
    }

    pub(super) fn set(&self, settings: LogSettings) {
        let json = settings.format == LogFormat::Json;
        self.json.store(json, Ordering::Relaxed);
        self.level.store(settings.level as u8, Ordering::Relaxed);
    }

    /// The line in place of lines that found the queue full.
    pub(super) fn dropped_line(&self, count: u64) -> String {
        let message = format!("{count} lines were dropped here");
        if self.json.load(Ordering::Relaxed) {
            json_line(Level::WARN, message, Map::new(), (self.now)())
        } else {
            format!("trivet: {message}")
        }
    }
}

const fn rank(level: Level) -> u8 {
    match level {
        Level::ERROR => LogLevel::Error as u8,
        Level::WARN => LogLevel::Warn as u8,
        Level::INFO => LogLevel::Info as u8,
        Level::DEBUG => LogLevel::Debug as u8,
        Level::TRACE => LogLevel::Debug as u8 + 1,
    }
}

impl Subscriber for &'static LogSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && rank(*metadata.level()) <= self.level.load(Ordering::Relaxed)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let line = if self.json.load(Ordering::Relaxed) {
            let EventFields { message, others } = fields;
            json_line(*event.metadata().level(), message, others, (self.now)())
        } else {
            text_line(event.metadata(), &fields)
        };
        (self.write)(&line);
    }

    // The level may change at any time.
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    // Spans are not used: each event has all its fields.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

fn text_line(metadata: &Metadata<'_>, fields: &EventFields) -> String {
    let warning = *metadata.level() == Level::WARN;
    let message = &fields.message;
    if metadata.target() == NOTE {
        let field = |name: &str| fields.others.get(name).and_then(Value::as_str);
        let (at, node) = (field(AT).unwrap_or("-"), field(NODE).unwrap_or("box"));
        let level = if warning { "warning" } else { "info" };
        return format!("{at} {level} {node}: {message}");
    }
    let level = if warning { "warning: " } else { "" };
    format!("trivet: {level}{message}")
}

fn json_line(level: Level, message: String, mut others: Map<String, Value>, now: UnixMs) -> String {
    let time = others.remove(AT);
    let time = time.unwrap_or_else(|| now.to_string().into());
    let level = level.as_str().to_ascii_lowercase();
    let mut line = Map::new();
    line.insert("time".to_owned(), time);
    line.insert("level".to_owned(), level.into());
    line.insert("message".to_owned(), message.into());
    line.extend(others);
    Value::Object(line).to_string()
}

/// The message of an event, and its other fields.
#[derive(Default)]
struct EventFields {
    message: String,
    others: Map<String, Value>,
}

impl EventFields {
    fn insert(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for EventFields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = sanitize(value);
        } else {
            self.insert(field, sanitize(value).into());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    use tracing::subscriber::with_default;
    use tracing::{debug, info, warn};

    use super::*;

    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// The lines that `events` logs in this thread.
    pub(in crate::log) fn lines(settings: LogSettings, events: impl FnOnce()) -> Vec<String> {
        let now = || UnixMs(1_794_796_610_746);
        let write = |line: &str| LINES.with_borrow_mut(|lines| lines.push(line.to_owned()));
        let subscriber: &'static _ = Box::leak(Box::new(LogSubscriber::new(now, write)));
        subscriber.set(settings);
        with_default(subscriber, events);
        LINES.take()
    }

    fn some_events() {
        info!("stopped");
        warn!(address = %"192.0.2.1:69", connections = 7, "TFTP has stopped");
        info!(target: NOTE, at = "2026-11-18T00:00:00+00:00", node = "n1", "power is on");
        warn!(target: NOTE, at = "2026-11-18T00:00:01+00:00", "no address is left");
        debug!("GET /v1/nodes: 200");
    }

    #[test]
    fn text_lines_are_sentences() {
        let lines = lines(LogSettings::default(), some_events);
        assert_eq!(
            lines,
            [
                "trivet: stopped",
                "trivet: warning: TFTP has stopped",
                "2026-11-18T00:00:00+00:00 info n1: power is on",
                "2026-11-18T00:00:01+00:00 warning box: no address is left",
            ]
        );
    }

    #[test]
    fn json_lines_have_all_fields() {
        let json = LogSettings {
            format: LogFormat::Json,
            ..LogSettings::default()
        };
        let lines = lines(json, some_events);
        let lines: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["time"], "2026-11-16T02:36:50.746000+00:00");
        assert_eq!(
            (&lines[0]["level"], &lines[0]["message"]),
            (&"info".into(), &"stopped".into())
        );
        assert_eq!(lines[1]["level"], "warn");
        assert_eq!(lines[1]["address"], "192.0.2.1:69");
        assert_eq!(lines[1]["connections"], 7);
        assert_eq!(lines[2]["time"], "2026-11-18T00:00:00+00:00");
        assert_eq!(lines[2]["node"], "n1");
        assert_eq!(lines[2]["message"], "power is on");
    }

    #[test]
    fn text_of_others_cannot_end_a_json_line() {
        let json = LogSettings {
            format: LogFormat::Json,
            ..LogSettings::default()
        };
        let hostile = "a\"},\n{\"level\":\"error\"";
        let lines = lines(json, || info!(node = hostile, "{hostile}"));
        assert_eq!(lines.len(), 1);
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["message"], hostile.replace('\n', " "));
        assert!(!lines[0].contains('\n'));
    }

    #[test]
    fn less_important_lines_are_left_out() {
        let count = |level| {
            let settings = LogSettings {
                level,
                ..LogSettings::default()
            };
            lines(settings, some_events).len()
        };
        let levels = [
            LogLevel::Error,
            LogLevel::Warn,
            LogLevel::Info,
            LogLevel::Debug,
        ];
        assert_eq!(levels.map(count), [0, 2, 4, 5]);
    }
}
