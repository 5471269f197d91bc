//! `trivet events`: prints events of the box, and follows new ones.

mod parser;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;
use trivet_model::EventTopic;
use trivet_net::percent::encode;

use crate::arguments::ConnectionArguments;
use crate::client::CliClient;
use crate::fault::CliFault;
use crate::request::CliRequest;
use crate::table::harmless;

pub(crate) use parser::EventTooLong;
use parser::{EventParser, ServerEvent};

/// The pause before a stream that ended is continued.
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Arguments of `trivet events`.
#[derive(Args, Debug)]
pub struct EventsArguments {
    #[command(flatten)]
    pub(crate) global: ConnectionArguments,
    /// Wait for new events, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only events about this; can be given several times
    #[arg(long, value_name = "TOPIC", value_parser = topics())]
    topic: Vec<String>,
    /// Only events of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

fn topics() -> PossibleValuesParser {
    let names = EventTopic::ALL.iter().map(|topic| topic.as_str());
    names.collect::<Vec<_>>().into()
}

/// Receives the output of the command.
pub(crate) trait EventPrinter {
    /// Prints one event; false if nobody reads any more.
    fn event(&mut self, line: &str) -> Result<(), crate::exit::Exit>;
    /// Prints a remark.
    fn note(&mut self, sentence: &str);
}

/// Why printing ends before the command does.
pub(crate) enum EventsEnd {
    /// The request failed.
    Fault(CliFault),
    /// Standard output is closed or cannot be written.
    Output(crate::exit::Exit),
}

impl From<CliFault> for EventsEnd {
    fn from(fault: CliFault) -> Self {
        Self::Fault(fault)
    }
}

impl EventsArguments {
    fn request(&self, after: Option<&str>) -> CliRequest {
        let mut path = format!("/trivet/events?follow={}", self.follow);
        let _ = match after {
            Some(after) => write!(path, "&after={}", encode(after)),
            None => write!(path, "&kept=true"),
        };
        if !self.topic.is_empty() {
            let _ = write!(path, "&topics={}", self.topic.join(","));
        }
        if let Some(node) = &self.node {
            let _ = write!(path, "&node={}", encode(node));
        }
        CliRequest::get(path)
    }

    /// Prints events until the box ends the stream, or for ever.
    pub(crate) async fn run(
        &self,
        client: &CliClient,
        printer: &mut impl EventPrinter,
    ) -> Result<(), EventsEnd> {
        let mut last = None;
        let mut is_lost = false;
        loop {
            let result = self.print(client, printer, &mut last).await;
            match result {
                Ok(()) if !self.follow => return Ok(()),
                Ok(()) => is_lost = false,
                // Before the first event the address may be wrong: then trying again is no help.
                Err(EventsEnd::Fault(fault)) if self.follow && last.is_some() => {
                    if !std::mem::replace(&mut is_lost, true) {
                        printer.note(&format!("trivet: {}; trying again", fault.sentence));
                    }
                }
                Err(end) => return Err(end),
            }
            tokio::time::sleep(RESUME_PAUSE).await;
        }
    }

    /// Prints the events of one response.
    async fn print(
        &self,
        client: &CliClient,
        printer: &mut impl EventPrinter,
        last: &mut Option<String>,
    ) -> Result<(), EventsEnd> {
        let request = self.request(last.as_deref());
        let mut body = client.stream(&request, "events").await?;
        let mut parser = EventParser::default();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| client.no_response(&error))?;
            for event in parser
                .push(&piece)
                .map_err(|error| client.not_events(error))?
            {
                self.show(&event, printer).map_err(EventsEnd::Output)?;
                *last = event.id.or_else(|| last.take());
            }
        }
        Ok(())
    }

    fn show(
        &self,
        event: &ServerEvent,
        printer: &mut impl EventPrinter,
    ) -> Result<(), crate::exit::Exit> {
        let json: Value = serde_json::from_str(&event.data).unwrap_or_default();
        match event.name.as_str() {
            // It only sets the position.
            "" | "ready" => Ok(()),
            "reset" => {
                let message = json["message"].as_str().unwrap_or_default();
                printer.note(&format!("trivet: events were lost: {}", harmless(message)));
                Ok(())
            }
            _ if self.global.json => printer.event(&json.to_string()),
            _ => printer.event(&line(&json)),
        }
    }
}

/// An event for people: time, node and message.
fn line(json: &Value) -> String {
    let text = |key: &str| json[key].as_str().unwrap_or_default();
    let node = json["node_name"].as_str().unwrap_or("box");
    let line = format!("{} {node}: {}", text("at"), text("message"));
    harmless(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> EventsArguments {
        EventsArguments {
            global: ConnectionArguments::default(),
            follow: false,
            topic: Vec::new(),
            node: None,
        }
    }

    #[derive(Default)]
    struct PrintedLines(Vec<String>);

    impl EventPrinter for PrintedLines {
        fn event(&mut self, line: &str) -> Result<(), crate::exit::Exit> {
            self.0.push(line.to_owned());
            Ok(())
        }

        fn note(&mut self, sentence: &str) {
            self.0.push(format!("note {sentence}"));
        }
    }

    #[test]
    fn the_first_request_asks_for_kept_events_and_the_next_one_continues() {
        let mut events = arguments();
        let path = "/trivet/events?follow=false&kept=true";
        assert_eq!(events.request(None).path, path);
        (events.follow, events.node) = (true, Some("a b".to_owned()));
        events.topic = vec!["fault".to_owned(), "state".to_owned()];
        let path = "/trivet/events?follow=true&after=f-1&topics=fault,state&node=a%20b";
        assert_eq!(events.request(Some("f-1")).path, path);
    }

    #[test]
    fn an_event_is_a_line_and_lost_ones_are_named() {
        let mut printed = PrintedLines::default();
        let data = r#"{"at":"T","node_name":"n1","message":"a \u001b[2J -> b"}"#;
        for (name, data) in [
            ("ready", "{}"),
            ("state", data),
            ("fault", r#"{"at":"T","node_name":null,"message":"x"}"#),
            ("reset", r#"{"reason":"too_old","message":"Read again."}"#),
        ] {
            let event = ServerEvent {
                id: None,
                name: name.to_owned(),
                data: data.to_owned(),
            };
            arguments().show(&event, &mut printed).unwrap();
        }
        assert_eq!(printed.0.len(), 3, "{:?}", printed.0);
        assert!(printed.0[0].starts_with("T n1: a "));
        assert!(!printed.0[0].contains('\u{1b}'));
        assert_eq!(printed.0[1], "T box: x");
        assert!(printed.0[2].starts_with("note ") && printed.0[2].contains("Read again."));
    }
}
