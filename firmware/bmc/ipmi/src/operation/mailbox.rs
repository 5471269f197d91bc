//! Boot options 5 and 7 (table 28-14): the boot flags, and the boot initiator mailbox, block by
//! block. Writes are enclosed in "set in progress" and "set complete" (parameter 0), which some
//! BMCs require and others do not support. If another console left "set in progress" set, or our
//! own request did because its response was lost, it is completed and set again.

use trivet_model::PowerError;

use super::{
    IpmiOperationNext, IpmiOperationResult, IpmiReply, invalid_response, refused, unsupported,
};
use crate::boot::BootFlags;
use crate::command::{IpmiRequest, chassis, completion, option};

/// Bytes of one block of the boot initiator mailbox.
pub const MAILBOX_BLOCK_BYTES: usize = 16;
/// Most blocks of the mailbox. Ours; the specification requires at least five.
pub const MAILBOX_BLOCKS_MAX: u8 = 16;
/// Most bytes of the mailbox.
pub const MAILBOX_BYTES_MAX: usize = MAILBOX_BLOCKS_MAX as usize * MAILBOX_BLOCK_BYTES;

/// Most attempts to set "set in progress". Ours: more than a lossy network needs.
const SET_IN_PROGRESS_TRIES_MAX: u8 = 4;

/// Values of parameter 0.
const COMPLETE: u8 = 0;
const IN_PROGRESS: u8 = 1;

fn read(parameter: u8, set: u8) -> IpmiRequest {
    IpmiRequest::chassis(chassis::BOOT_OPTIONS, &[parameter, set, 0])
}

fn write(parameter: u8, data: &[u8]) -> IpmiRequest {
    let data = [&[parameter][..], data].concat();
    IpmiRequest::chassis(chassis::SET_BOOT_OPTIONS, &data)
}

pub(super) fn read_flags() -> IpmiRequest {
    read(option::FLAGS, 0)
}

/// The data of a parameter, after a version byte and the parameter's number, whose top bit means
/// locked.
fn parameter(data: &[u8], number: u8) -> Option<&[u8]> {
    match data {
        [_version, message, rest @ ..] if message & 0x7f == number => Some(rest),
        _ => None,
    }
}

/// The boot flags in a response.
pub(super) fn parse_flags(code: u8, data: &[u8]) -> IpmiOperationResult {
    if code != completion::OK {
        return Err(PowerError::Refused { code });
    }
    parameter(data, option::FLAGS)
        .and_then(BootFlags::parse)
        .map(IpmiReply::BootFlags)
        .ok_or(PowerError::InvalidResponse {
            message: "boot flags cut short",
        })
}

/// One block of the mailbox in a response. A BMC may leave out zeros at the end.
fn block(data: &[u8], number: u8) -> Option<[u8; MAILBOX_BLOCK_BYTES]> {
    let (&message, bytes) = parameter(data, option::MAILBOX)?.split_first()?;
    let mut whole = [0; MAILBOX_BLOCK_BYTES];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    (message == number).then_some(whole)
}

/// Reads the mailbox.
#[derive(Clone, Debug)]
pub(super) struct MailboxReadScript {
    blocks: u8,
    next: u8,
    bytes: Vec<u8>,
}

impl MailboxReadScript {
    pub(super) fn start(blocks: u8) -> Result<(Self, IpmiRequest), PowerError> {
        if !(1..=MAILBOX_BLOCKS_MAX).contains(&blocks) {
            return Err(unsupported("the boot mailbox has 1 to 16 blocks to read"));
        }
        let bytes = Vec::new();
        let script = Self {
            blocks,
            next: 0,
            bytes,
        };
        Ok((script, read(option::MAILBOX, 0)))
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        match code {
            completion::OK => {}
            // The mailbox has fewer blocks than requested.
            completion::OUT_OF_RANGE | completion::BAD_FIELD | completion::NOT_PRESENT
                if self.next > 0 =>
            {
                return self.end();
            }
            code => return refused(code),
        }
        let Some(block) = block(data, self.next) else {
            return invalid_response("a mailbox block that is not the requested one");
        };
        self.bytes.extend(block);
        self.next += 1;
        if self.next < self.blocks {
            return IpmiOperationNext::Send(read(option::MAILBOX, self.next));
        }
        self.end()
    }

    fn end(&mut self) -> IpmiOperationNext {
        IpmiOperationNext::Done(Ok(IpmiReply::Mailbox(core::mem::take(&mut self.bytes))))
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MailboxWriteStep {
    /// Setting "set in progress"; has the number of attempts.
    Open {
        times: u8,
    },
    /// Completing a "set in progress" that was left set.
    Reopen {
        times: u8,
    },
    Write,
    Close,
    Check,
}

/// Writes the mailbox.
#[derive(Clone, Debug)]
pub(super) struct MailboxWriteScript {
    blocks: Vec<[u8; MAILBOX_BLOCK_BYTES]>,
    next: u8,
    step: MailboxWriteStep,
    /// The completion code of a refused block; "set complete" is sent all the same.
    refused_with: Option<u8>,
}

impl MailboxWriteScript {
    pub(super) fn start(bytes: &[u8]) -> Result<(Self, IpmiRequest), PowerError> {
        if !(1..=MAILBOX_BYTES_MAX).contains(&bytes.len()) {
            return Err(unsupported("the boot mailbox holds 1 to 256 bytes"));
        }
        let blocks = bytes.chunks(MAILBOX_BLOCK_BYTES).map(|chunk| {
            let mut whole = [0; MAILBOX_BLOCK_BYTES];
            whole[..chunk.len()].copy_from_slice(chunk);
            whole
        });
        let script = Self {
            blocks: blocks.collect(),
            next: 0,
            step: MailboxWriteStep::Open { times: 1 },
            refused_with: None,
        };
        Ok((script, write(option::SET_IN_PROGRESS, &[IN_PROGRESS])))
    }

    fn present(&self) -> Option<&[u8; MAILBOX_BLOCK_BYTES]> {
        self.blocks.get(usize::from(self.next))
    }

    fn advance(&mut self, step: MailboxWriteStep) -> IpmiOperationNext {
        self.step = step;
        let request = match step {
            MailboxWriteStep::Open { .. } => write(option::SET_IN_PROGRESS, &[IN_PROGRESS]),
            MailboxWriteStep::Reopen { .. } | MailboxWriteStep::Close => {
                write(option::SET_IN_PROGRESS, &[COMPLETE])
            }
            MailboxWriteStep::Write => {
                let bytes = self.present().copied().unwrap_or_default();
                write(option::MAILBOX, &[&[self.next][..], &bytes].concat())
            }
            MailboxWriteStep::Check => read(option::MAILBOX, self.next),
        };
        IpmiOperationNext::Send(request)
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        match self.step {
            MailboxWriteStep::Open { times } if code == completion::IN_PROGRESS => {
                if times >= SET_IN_PROGRESS_TRIES_MAX {
                    return refused(code);
                }
                self.advance(MailboxWriteStep::Reopen { times })
            }
            // A BMC that does not support "set in progress" does not require it.
            MailboxWriteStep::Open { .. } => self.advance(MailboxWriteStep::Write),
            MailboxWriteStep::Reopen { times } => {
                self.advance(MailboxWriteStep::Open { times: times + 1 })
            }
            MailboxWriteStep::Write if code != completion::OK => {
                self.refused_with = Some(code);
                self.advance(MailboxWriteStep::Close)
            }
            MailboxWriteStep::Write => {
                self.next += 1;
                let step = match self.present() {
                    Some(_) => MailboxWriteStep::Write,
                    None => MailboxWriteStep::Close,
                };
                self.advance(step)
            }
            MailboxWriteStep::Close => match self.refused_with {
                Some(code) => refused(code),
                None => {
                    self.next = 0;
                    self.advance(MailboxWriteStep::Check)
                }
            },
            MailboxWriteStep::Check => self.check(code, data),
        }
    }

    fn check(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        if code != completion::OK {
            return refused(code);
        }
        if block(data, self.next).as_ref() != self.present() {
            return invalid_response("a mailbox block that is not what was written to it");
        }
        self.next += 1;
        match self.present() {
            Some(_) => self.advance(MailboxWriteStep::Check),
            None => IpmiOperationNext::Done(Ok(IpmiReply::Done)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{is_invalid_response, run_script};
    use super::super::{IpmiOperation, IpmiOperationScript};
    use super::*;

    /// A mailbox of 16 blocks that responds to "set in progress" with the given codes, in turn.
    struct FakeMailbox {
        blocks: [[u8; 16]; 16],
        frames: Vec<u8>,
    }

    impl FakeMailbox {
        fn new(frames: &[u8]) -> Self {
            Self {
                blocks: [[0; 16]; 16],
                frames: frames.iter().rev().copied().collect(),
            }
        }

        fn answer(&mut self, request: &IpmiRequest) -> Vec<u8> {
            match (request.command, &request.data[..]) {
                (chassis::SET_BOOT_OPTIONS, [option::SET_IN_PROGRESS, _]) => {
                    vec![self.frames.pop().unwrap_or_default()]
                }
                (chassis::SET_BOOT_OPTIONS, [option::MAILBOX, block, bytes @ ..]) => {
                    self.blocks[usize::from(*block)].copy_from_slice(bytes);
                    vec![0]
                }
                (chassis::BOOT_OPTIONS, [option::MAILBOX, block, 0]) => {
                    let bytes = &self.blocks[usize::from(*block)];
                    [&[0, 1, option::MAILBOX, *block][..], bytes].concat()
                }
                other => panic!("unexpected request {other:?}"),
            }
        }
    }

    #[test]
    fn a_smaller_mailbox_is_read_to_its_end() {
        let read = IpmiOperation::ReadMailbox { blocks: 16 };
        for code in [0xc9, 0xcc, 0xcb] {
            let mut small = FakeMailbox::new(&[]);
            let (requests, outcome) = run_script(read.clone(), |request| match request.data[1] {
                5.. => vec![code],
                _ => small.answer(request),
            });
            assert_eq!(
                (requests.len(), outcome),
                (6, Ok(IpmiReply::Mailbox(vec![0; 80])))
            );
        }
        let (_, outcome) = run_script(read, |_| vec![0xcc]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xcc }));
    }

    fn write_of(length: usize) -> IpmiOperation {
        let bytes = (0..length).map(|at| at as u8 + 1).collect();
        IpmiOperation::WriteMailbox { bytes }
    }

    #[test]
    fn writes_block_by_block_inside_a_frame_and_reads_back() {
        let mut mailbox = FakeMailbox::new(&[]);
        let (requests, outcome) = run_script(write_of(20), |request| mailbox.answer(request));
        assert_eq!(outcome, Ok(IpmiReply::Done));
        let heads: Vec<_> = requests
            .iter()
            .map(|request| (request.command, request.data[0], request.data[1]))
            .collect();
        let want = [
            (8, 0, 1),
            (8, 7, 0),
            (8, 7, 1),
            (8, 0, 0),
            (9, 7, 0),
            (9, 7, 1),
        ];
        assert_eq!(heads, want);
        assert_eq!(requests[2].data[2..8], [17, 18, 19, 20, 0, 0]);
        assert_eq!(requests[2].data.len(), 18);
        let read = IpmiOperation::ReadMailbox { blocks: 2 };
        let (_, outcome) = run_script(read, |request| mailbox.answer(request));
        let Ok(IpmiReply::Mailbox(bytes)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((bytes.len(), bytes[19], bytes[20]), (32, 20, 0));
    }

    #[test]
    fn set_in_progress_left_set_is_completed_and_not_required() {
        for (frames, good) in [
            (&[0x81, 0, 0][..], true),
            (&[0x80], true),
            (&[0xc1, 0xc1], true),
            (&[0x81, 0, 0x81, 0, 0x81, 0, 0x81], false),
        ] {
            let mut mailbox = FakeMailbox::new(frames);
            let (_, outcome) = run_script(write_of(1), |request| mailbox.answer(request));
            let want = Err(PowerError::Refused { code: 0x81 });
            assert_eq!(outcome, if good { Ok(IpmiReply::Done) } else { want });
        }
    }

    #[test]
    fn a_refused_block_is_reported_after_set_complete() {
        let (requests, outcome) = run_script(write_of(40), |request| {
            vec![if request.data[0] == 7 { 0xcc } else { 0 }]
        });
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xcc }));
        let last = requests.last().map(|request| request.data.clone());
        assert_eq!((requests.len(), last), (3, Some(vec![0, 0])));
    }

    #[test]
    fn what_reads_back_otherwise_was_not_written() {
        let (_, outcome) = run_script(write_of(3), |request| match request.command {
            chassis::BOOT_OPTIONS => vec![0, 1, 7, 0, 1, 2, 9],
            _ => vec![0],
        });
        assert!(is_invalid_response(&outcome), "{outcome:?}");
        let (_, outcome) = run_script(write_of(3), |request| match request.command {
            chassis::BOOT_OPTIONS => vec![0, 1, 7, 0, 1, 2, 3],
            _ => vec![0],
        });
        assert_eq!(
            outcome,
            Ok(IpmiReply::Done),
            "zeros at the end may be missing"
        );
    }

    #[test]
    fn answers_for_another_block_or_parameter_or_too_long_are_refused() {
        for body in [
            &[0][..],
            &[0, 1],
            &[0, 1, 7],
            &[0, 1, 7, 1, 5],
            &[0, 1, 5, 0, 5],
            &[
                0, 1, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
            ],
        ] {
            let read = IpmiOperation::ReadMailbox { blocks: 1 };
            let (_, outcome) = run_script(read, |_| body.to_vec());
            assert!(is_invalid_response(&outcome), "{body:?}: {outcome:?}");
        }
        let (_, outcome) = run_script(IpmiOperation::ReadMailbox { blocks: 9 }, |_| vec![0xc9]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xc9 }));
    }

    #[test]
    fn sizes_that_no_mailbox_has_are_refused_at_once() {
        for operation in [
            write_of(0),
            IpmiOperation::WriteMailbox {
                bytes: vec![0; MAILBOX_BYTES_MAX + 1],
            },
            IpmiOperation::ReadMailbox { blocks: 0 },
            IpmiOperation::ReadMailbox { blocks: 17 },
        ] {
            let refused = IpmiOperationScript::start(operation).err();
            assert!(matches!(refused, Some(PowerError::Unsupported { .. })));
        }
    }

    #[test]
    fn flags_are_read_with_every_bit() {
        let (requests, outcome) = run_script(IpmiOperation::BootFlags, |_| {
            vec![0, 1, 0x85, 0x60, 4, 0, 0, 0]
        });
        assert_eq!(requests[0].data, [5, 0, 0]);
        let want = BootFlags {
            valid: false,
            persistent: true,
            efi: true,
            device: Some(trivet_model::BootDevice::Pxe),
        };
        assert_eq!(outcome, Ok(IpmiReply::BootFlags(want)));
        for body in [&[0][..], &[0, 1, 5, 0x80, 4], &[0, 1, 7, 0x80, 4, 0, 0, 0]] {
            let (_, outcome) = run_script(IpmiOperation::BootFlags, |_| body.to_vec());
            assert!(is_invalid_response(&outcome));
        }
        let (_, outcome) = run_script(IpmiOperation::BootFlags, |_| vec![0xd4]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xd4 }));
    }
}
