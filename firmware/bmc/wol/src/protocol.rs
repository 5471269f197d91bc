//! Wake-on-LAN as a protocol of [`trivet_bmc::Bmcs`].

use std::collections::VecDeque;

use trivet_bmc::{
    BmcInterface, BmcOrderStep, BmcProtocol, BmcProtocolContext, BmcProtocolEvent, BmcReach,
    BmcTarget, BmcTransmit,
};
use trivet_model::interface::PowerInterface;
use trivet_model::{BmcRequest, Node, PowerError, PowerOrder, Tick};

use crate::{NO_BMC, WakeOnLanAction, wake_on_lan};

/// Magic packets that are to be sent, and answers, which do not wait for a reply.
#[derive(Default)]
pub struct WakeOnLanProtocol {
    packets: VecDeque<BmcTransmit>,
    events: VecDeque<BmcProtocolEvent>,
}

impl BmcProtocol for WakeOnLanProtocol {
    fn name(&self) -> &'static str {
        "wake_on_lan"
    }

    fn serves(&self, _: &Node, interface: BmcInterface) -> bool {
        interface == BmcInterface::Power(PowerInterface::WakeOnLan)
    }

    fn reach(&self) -> BmcReach {
        BmcReach::OneWay
    }

    fn order(
        &mut self,
        _: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        let answer = match wake_on_lan(target.node, order, target.macs) {
            WakeOnLanAction::OverSsh => return Ok(BmcOrderStep::Forward(PowerInterface::Ssh)),
            WakeOnLanAction::Answer(answer) => answer?,
            WakeOnLanAction::Send {
                to,
                packets,
                answer,
            } => {
                let packets = packets.into_iter();
                self.packets
                    .extend(packets.map(|bytes| BmcTransmit::Datagram { to, bytes }));
                answer
            }
        };
        self.events.push_back(BmcProtocolEvent::OrderAnswered {
            number,
            answer: Ok(answer),
        });
        Ok(BmcOrderStep::Taken)
    }

    fn request(
        &mut self,
        _: &mut BmcProtocolContext,
        _: &BmcTarget,
        _: u64,
        _: &BmcRequest,
    ) -> Result<(), PowerError> {
        Err(PowerError::Unsupported { message: NO_BMC })
    }

    fn next_event(&mut self) -> Option<BmcProtocolEvent> {
        self.events.pop_front()
    }

    fn next_transmit(&mut self, _: Tick, _: &mut u64) -> Option<BmcTransmit> {
        self.packets.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trivet_model::{MacAddr, NodeId, PowerAnswer, PowerState, SeededRandom, UnixMs};

    use super::*;

    const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

    fn order(
        wol: &mut WakeOnLanProtocol,
        node: &Node,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        let mut context = BmcProtocolContext {
            now: Tick(0),
            entropy: &mut SeededRandom::new(1),
        };
        let target = BmcTarget {
            node,
            macs: &MACS,
            boots_agent: false,
        };
        let refused = wol.request(&mut context, &target, 1, &BmcRequest::Sensors);
        assert!(matches!(refused, Err(PowerError::Unsupported { .. })));
        wol.order(&mut context, &target, 7, order)
    }

    #[test]
    fn packets_are_sent_and_the_answer_does_not_wait() {
        let id = NodeId::random(&mut SeededRandom::new(1));
        let mut node = Node::new(id, "manual-management", UnixMs(1));
        let mut wol = WakeOnLanProtocol::default();
        assert!(wol.serves(&node, BmcInterface::Power(PowerInterface::WakeOnLan)));
        assert_eq!(wol.reach(), BmcReach::OneWay);
        assert_eq!(wol.name(), "wake_on_lan");
        assert!(wol.deadline().is_none());
        assert!(wol.bmc_identity(&node).is_none());
        let step = order(&mut wol, &node, PowerOrder::On);
        assert_eq!(step, Ok(BmcOrderStep::Taken));
        let answer = wol.next_event();
        let Some(BmcProtocolEvent::OrderAnswered { number: 7, answer }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(answer, Ok(PowerAnswer::Power(PowerState::On)));
        let mut packets = 0;
        while let Some(packet) = wol.next_transmit(Tick(0), &mut 0) {
            let is_magic = matches!(&packet, BmcTransmit::Datagram { to, bytes }
                if to.port() == 9 && bytes.len() == 102);
            assert!(is_magic, "{packet:?}");
            packets += 1;
        }
        assert_eq!(packets % MACS.len(), 0);
        assert!(packets >= MACS.len());
        node.power_state = Some(PowerState::On);
        assert!(order(&mut wol, &node, PowerOrder::Off).is_err());
        assert!(wol.next_event().is_none());
        let info = json!({"ssh_address": "192.0.2.7"});
        node.driver_info = info.as_object().unwrap().clone();
        let step = order(&mut wol, &node, PowerOrder::Off);
        assert_eq!(step, Ok(BmcOrderStep::Forward(PowerInterface::Ssh)));
        assert!(wol.next_event().is_none() && wol.next_transmit(Tick(0), &mut 0).is_none());
    }
}
