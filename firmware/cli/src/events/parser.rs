//! Server-sent events (WHATWG HTML, section 9.2), as far as the box sends them.

/// The longest event that is accepted. Ours: the box sends a tenth of it.
const EVENT_BYTES_MAX: usize = 64 * 1024;

/// One event. One without data only sets the position of the client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct ServerEvent {
    /// The position to continue from, if the event sets it.
    pub(super) id: Option<String>,
    /// Its type; empty where it has none.
    pub(super) name: String,
    pub(super) data: String,
}

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EventTooLong;

/// Splits a stream into events.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    line: Vec<u8>,
    event: ServerEvent,
}

impl EventParser {
    /// The events that are complete with these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<ServerEvent>, EventTooLong> {
        let mut events = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                if self.line.len() + self.event.data.len() >= EVENT_BYTES_MAX {
                    return Err(EventTooLong);
                }
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                events.push(std::mem::take(&mut self.event));
            } else {
                self.field(line);
            }
        }
        Ok(events)
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // A comment, or a field of a later version.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_stream_is_cut() {
        let text = b": hello\nid: f-1\nevent: state\ndata: {\"a\": 1}\n\nid: f-2\r\n\r\n";
        let want = [
            ServerEvent {
                id: Some("f-1".to_owned()),
                name: "state".to_owned(),
                data: "{\"a\": 1}".to_owned(),
            },
            ServerEvent {
                id: Some("f-2".to_owned()),
                ..ServerEvent::default()
            },
        ];
        for cut in 0..text.len() {
            let mut parser = EventParser::default();
            let mut events = parser.push(&text[..cut]).unwrap();
            events.extend(parser.push(&text[cut..]).unwrap());
            assert_eq!(events, want, "cut at {cut}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = EventParser::default();
        let line = "x".repeat(EVENT_BYTES_MAX + 1);
        assert_eq!(parser.push(line.as_bytes()), Err(EventTooLong));
        let mut parser = EventParser::default();
        let lines = "data: 0123456789\n".repeat(EVENT_BYTES_MAX / 10);
        assert_eq!(parser.push(lines.as_bytes()), Err(EventTooLong));
    }
}
