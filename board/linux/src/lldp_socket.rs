//! Receives the LLDP frames of interfaces (IEEE 802.1AB).

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};

use crate::EthernetInterface;
use crate::frames::{bind, join, packet_socket};

/// The EtherType of LLDP.
const ETHERTYPE: u16 = 0x88cc;

/// The groups that neighbours send to (IEEE 802.1AB, table 7-1).
const GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0, 0, 0x0e],
    [0x01, 0x80, 0xc2, 0, 0, 0x03],
    [0x01, 0x80, 0xc2, 0, 0, 0x00],
];

/// Longest frame that is read; the stock agent's own limit.
const FRAME_BYTES_MAX: usize = 1600;

/// Waits for one LLDP frame on each interface. The result has the frame of each interface, in
/// the order of the interfaces; `None` if no frame came within the timeout. Needs
/// `CAP_NET_RAW`.
#[expect(
    clippy::disallowed_methods,
    reason = "the shell reads the clock to end its wait"
)]
pub fn receive_lldp(
    interfaces: &[EthernetInterface],
    timeout: Duration,
) -> io::Result<Vec<Option<Vec<u8>>>> {
    let sockets = interfaces
        .iter()
        .map(open)
        .collect::<io::Result<Vec<_>>>()?;
    let mut frames = vec![None; sockets.len()];
    let start = Instant::now();
    while frames.iter().any(Option::is_none) {
        let Some(rest) = timeout.checked_sub(start.elapsed()) else {
            break;
        };
        for at in ready(&sockets, &frames, rest)? {
            let mut buffer = [0; FRAME_BYTES_MAX];
            // An interface that goes down has no frame; its socket is not read again.
            let bytes = recv(&sockets[at], &mut buffer, RecvFlags::DONTWAIT);
            frames[at] =
                Some(bytes.map_or_else(|_| Vec::new(), |(bytes, _)| buffer[..bytes].to_vec()));
        }
    }
    let received = |frame: Option<Vec<u8>>| frame.filter(|frame| !frame.is_empty());
    Ok(frames.into_iter().map(received).collect())
}

fn open(interface: &EthernetInterface) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    bind(&socket, interface.index, ETHERTYPE)?;
    for group in GROUPS {
        join(&socket, interface.index, group)?;
    }
    Ok(socket)
}

/// Which sockets without a frame have one now.
fn ready(
    sockets: &[OwnedFd],
    frames: &[Option<Vec<u8>>],
    rest: Duration,
) -> io::Result<Vec<usize>> {
    let lacking: Vec<usize> = (0..sockets.len())
        .filter(|&at| frames[at].is_none())
        .collect();
    let mut files: Vec<PollFd<'_>> = lacking
        .iter()
        .map(|&at| PollFd::new(&sockets[at], PollFlags::IN))
        .collect();
    let rest = Timespec {
        tv_sec: rest.as_secs() as _,
        tv_nsec: rest.subsec_nanos().into(),
    };
    poll(&mut files, Some(&rest))?;
    let ready = files.iter().zip(lacking);
    Ok(ready
        .filter(|(file, _)| !file.revents().is_empty())
        .map(|(_, at)| at)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketSocketSender;
    use crate::frames::testing::wire;
    use crate::interface;
    use trivet_board_hal::FrameSender as _;

    #[test]
    fn a_frame_of_a_neighbour_arrives_and_a_silent_link_ends_with_the_timeout() {
        wire(|| {
            let left = interface("left").unwrap().unwrap();
            let right = interface("right").unwrap().unwrap();
            let mut frame = GROUPS[0].to_vec();
            frame.extend(right.mac);
            frame.extend(ETHERTYPE.to_be_bytes());
            frame.extend([0; 50]);
            let silent = receive_lldp(std::slice::from_ref(&left), Duration::ZERO).unwrap();
            assert_eq!(silent, [None]);
            let waiter = std::thread::scope(|scope| {
                let waiter = scope
                    .spawn(|| receive_lldp(std::slice::from_ref(&left), Duration::from_mins(1)));
                let mut sender = PacketSocketSender::open(&right).unwrap();
                // The receiver opens its socket at some time: send until it has a frame.
                while !waiter.is_finished() {
                    sender.send(std::slice::from_ref(&frame)).unwrap();
                    std::thread::yield_now();
                }
                waiter.join().unwrap()
            });
            assert_eq!(waiter.unwrap(), [Some(frame)]);
        });
    }
}
