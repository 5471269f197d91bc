//! The newest events, and positions in them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use trivet_model::Note;

use crate::event::BoxEvent;

/// The most events that are kept. Ours: a rack of a hundred machines that boots at once.
pub const EVENTS_MAX: usize = 4096;

/// The most bytes of all kept events together. Ours.
pub const EVENTS_BYTES_MAX: usize = 4 << 20;

/// The newest events of the box since its start.
#[derive(Clone, Debug)]
pub struct EventRing {
    /// Random for each start of the box.
    epoch: u64,
    /// The sequence number of the newest event; zero before the first.
    newest: u64,
    events: VecDeque<Arc<BoxEvent>>,
    bytes: usize,
}

/// Where a client begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StreamStart {
    /// The sequence number of the last event that it needs no more.
    pub after: u64,
    /// Events between its last one and the first that it receives are lost.
    pub reset: Option<StreamReset>,
}

/// Why a client must read the present state again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamReset {
    /// The box has restarted since its last event, or the identity is not one of a box.
    Restarted,
    /// Its last event is older than the oldest one that is kept.
    TooOld,
}

impl StreamReset {
    /// The name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restarted => "restarted",
            Self::TooOld => "too_old",
        }
    }
}

/// The position is older than the oldest event: events are lost for its owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EventOvertaken {
    /// How many events.
    pub lost: u64,
}

impl fmt::Display for EventOvertaken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} events were lost", self.lost)
    }
}

impl EventRing {
    /// A ring without events. The epoch must differ from those of earlier starts.
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            newest: 0,
            events: VecDeque::new(),
            bytes: 0,
        }
    }

    /// The sequence number of the newest event.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The identity of the event with this number: the epoch in hexadecimal digits and the number.
    pub fn id(&self, sequence: u64) -> String {
        format!("{:016x}-{sequence}", self.epoch)
    }

    /// Adds the event of a note; the oldest ones are removed where a bound is exceeded.
    pub fn push(&mut self, note: &Note, label: Option<&str>) {
        self.newest += 1;
        let event = BoxEvent::new(self.newest, self.id(self.newest), note, label);
        self.bytes += event.json.len();
        self.events.push_back(Arc::new(event));
        while self.events.len() > EVENTS_MAX || self.bytes > EVENTS_BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.json.len();
        }
    }

    /// The sequence number before the oldest event that is kept.
    fn before_oldest(&self) -> u64 {
        self.newest - self.events.len() as u64
    }

    /// The position of a client whose last event is this one.
    pub fn resume(&self, last: &str) -> StreamStart {
        let sequence = self.sequence_of(last);
        let (after, reset) = match sequence {
            None => (self.newest, Some(StreamReset::Restarted)),
            Some(sequence) if sequence < self.before_oldest() => {
                (self.newest, Some(StreamReset::TooOld))
            }
            Some(sequence) => (sequence, None),
        };
        StreamStart { after, reset }
    }

    /// The position of a client that wants new events only, or all that are kept.
    pub fn start(&self, with_kept: bool) -> StreamStart {
        let after = if with_kept {
            self.before_oldest()
        } else {
            self.newest
        };
        StreamStart { after, reset: None }
    }

    /// The sequence number in an identity of this epoch.
    fn sequence_of(&self, id: &str) -> Option<u64> {
        let (epoch, sequence) = id.split_once('-')?;
        let is_ours = epoch.len() == 16 && u64::from_str_radix(epoch, 16).ok()? == self.epoch;
        let sequence: u64 = sequence.parse().ok()?;
        (is_ours && sequence <= self.newest).then_some(sequence)
    }

    /// At most `most` events after a position, oldest first.
    pub fn read(&self, after: u64, most: usize) -> Result<Vec<Arc<BoxEvent>>, EventOvertaken> {
        let Some(skipped) = after.checked_sub(self.before_oldest()) else {
            let lost = self.before_oldest() - after;
            return Err(EventOvertaken { lost });
        };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let rest = self.events.iter().skip(skipped).take(most);
        Ok(rest.cloned().collect())
    }
}
