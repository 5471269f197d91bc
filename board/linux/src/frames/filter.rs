//! The receive filter in the kernel: a classic BPF program.
//!
//! Offsets are those of an Ethernet frame whose VLAN tag the kernel has already removed.

use std::io;
use std::os::fd::OwnedFd;

use trivet_board_hal::FRAME_BYTES_MAX;

/// Instructions (Linux, Documentation/networking/filter.rst).
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_IPV4_HEADER_LENGTH: u16 = 0xb1;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Addresses of the instructions that accept or drop a frame.
const TAKE: usize = 18;
const DROP: usize = 19;

const LENGTH: usize = 20;

/// Accepts the DHCP ports in unfragmented or first fragments of IPv4, all of ARP, and router
/// solicitations.
fn program() -> [libc::sock_filter; LENGTH] {
    let plain = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    // Jump offsets count from the next instruction.
    let jump = |at: usize, code, k, yes: usize, no: usize| libc::sock_filter {
        code,
        jt: (yes - at - 1) as u8,
        jf: (no - at - 1) as u8,
        k,
    };
    [
        /*  0 */ plain(LOAD_HALF, 12),
        /*  1 */ jump(1, JUMP_EQUAL, 0x0806, TAKE, 2),
        /*  2 */ jump(2, JUMP_EQUAL, 0x0800, 3, 12),
        // IPv4: UDP, not a later fragment, one of three ports.
        /*  3 */
        plain(LOAD_BYTE, 14 + 9),
        /*  4 */ jump(4, JUMP_EQUAL, 17, 5, DROP),
        /*  5 */ plain(LOAD_HALF, 14 + 6),
        /*  6 */ jump(6, JUMP_ANY_BIT, 0x1fff, DROP, 7),
        /*  7 */ plain(LOAD_IPV4_HEADER_LENGTH, 14),
        /*  8 */ plain(LOAD_HALF_INDEXED, 14 + 2),
        /*  9 */ jump(9, JUMP_EQUAL, 67, TAKE, 10),
        /* 10 */ jump(10, JUMP_EQUAL, 68, TAKE, 11),
        /* 11 */ jump(11, JUMP_EQUAL, 4011, TAKE, DROP),
        // IPv6: ICMP, a router solicitation.
        /* 12 */
        jump(12, JUMP_EQUAL, 0x86dd, 13, DROP),
        /* 13 */ plain(LOAD_BYTE, 14 + 6),
        /* 14 */ jump(14, JUMP_EQUAL, 58, 15, DROP),
        /* 15 */ plain(LOAD_BYTE, 14 + 40),
        /* 16 */ jump(16, JUMP_EQUAL, 133, TAKE, DROP),
        // Not reached: it keeps the two ends beyond every jump.
        /* 17 */
        plain(RETURN, 0),
        /* 18 */ plain(RETURN, FRAME_BYTES_MAX as u32 + 1),
        /* 19 */ plain(RETURN, 0),
    ]
}

pub(super) fn attach(socket: &OwnedFd) -> io::Result<()> {
    let mut program = program();
    let request = libc::sock_fprog {
        len: LENGTH as u16,
        filter: program.as_mut_ptr(),
    };
    super::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An independent interpreter of the program: whether it accepts a frame.
    fn run(frame: &[u8]) -> bool {
        let half = |at: usize| {
            let pair = frame.get(at..at + 2)?;
            Some(u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        };
        let byte = |at: usize| frame.get(at).copied().map(u32::from);
        let program = program();
        let (mut at, mut value, mut index) = (0, 0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let read = match step.code {
                LOAD_HALF => half(step.k as usize),
                LOAD_BYTE => byte(step.k as usize),
                LOAD_HALF_INDEXED => half(index + step.k as usize),
                LOAD_IPV4_HEADER_LENGTH => {
                    index = (byte(step.k as usize).unwrap_or(0) & 15) as usize * 4;
                    Some(value)
                }
                JUMP_EQUAL | JUMP_ANY_BIT => {
                    let yes = match step.code {
                        JUMP_EQUAL => value == step.k,
                        _ => value & step.k != 0,
                    };
                    at += usize::from(if yes { step.jt } else { step.jf });
                    Some(value)
                }
                RETURN => return step.k != 0,
                other => panic!("no such instruction: {other:#x}"),
            };
            // A frame that is too short for a load is dropped.
            let Some(read) = read else { return false };
            value = read;
        }
    }

    fn ipv4(protocol: u8, piece: u16, options: usize, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45 + (options / 4) as u8, 0, 0, 0, 0, 0]);
        frame.extend(piece.to_be_bytes());
        frame.extend([64, protocol, 0, 0]);
        frame.extend(vec![0; 8 + options]);
        frame.extend([0, 68]);
        frame.extend(port.to_be_bytes());
        frame.extend([0; 4]);
        frame
    }

    #[test]
    fn dhcp_is_accepted_with_any_ip_options() {
        for options in [0, 4, 40] {
            for port in [67, 68, 4011] {
                assert!(run(&ipv4(17, 0, options, port)));
            }
            for port in [69, 53, 0, 4010] {
                assert!(!run(&ipv4(17, 0, options, port)));
            }
        }
        assert!(run(&ipv4(17, 0x4000, 0, 67)), "don't fragment");
    }

    #[test]
    fn later_fragments_and_other_protocols_are_dropped() {
        assert!(!run(&ipv4(17, 1, 0, 67)));
        assert!(!run(&ipv4(6, 0, 0, 67)));
        let mut other = ipv4(17, 0, 0, 67);
        other[12..14].copy_from_slice(&[0x88, 0xcc]);
        assert!(!run(&other));
    }

    #[test]
    fn arp_and_router_solicitations_are_accepted() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 6]);
        assert!(run(&frame));
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[20] = 58;
        frame[54] = 133;
        assert!(run(&frame));
        frame[54] = 135;
        assert!(!run(&frame));
        frame[20] = 17;
        assert!(!run(&frame));
    }

    #[test]
    fn a_frame_that_is_cut_short_is_dropped() {
        let whole = ipv4(17, 0, 0, 67);
        for cut in 0..whole.len() - 4 {
            assert!(!run(&whole[..cut]), "cut at {cut}");
        }
    }
}
