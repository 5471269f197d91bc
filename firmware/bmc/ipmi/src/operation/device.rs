//! Identity of a BMC: Get Device ID (section 20.1), then the GUIDs of the BMC and of the machine,
//! which not every BMC has.

use super::{IpmiOperationNext, IpmiReply, invalid_response, refused};
use crate::command::{IpmiRequest, app, completion};
use crate::wire::sixteen_at;

/// The data of Get Device ID.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceId {
    /// Device ID, assigned by the manufacturer.
    pub id: u8,
    /// Device revision.
    pub revision: u8,
    /// Major firmware revision.
    pub major: u8,
    /// Minor firmware revision as it was sent: two digits in BCD, hexadecimal ones in some BMCs.
    pub minor: u8,
    /// IPMI version, major and minor.
    pub ipmi: (u8, u8),
    /// IANA's enterprise number of the manufacturer.
    pub maker: u32,
    /// Product ID, assigned by the manufacturer.
    pub product: u16,
}

/// Enterprise numbers have 20 bits here; the others are reserved.
const MAKER_MASK: u32 = 0x000f_ffff;

impl DeviceId {
    /// Reads the data of Get Device ID.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let device = ipmi_rs_core::app::DeviceId::from_data(data)?;
        Some(Self {
            id: device.device_id,
            revision: device.device_revision,
            major: device.major_fw_revision,
            // The crate converts from BCD, which loses hexadecimal digits.
            minor: *data.get(3)?,
            ipmi: (device.major_version, device.minor_version),
            maker: device.manufacturer_id & MAKER_MASK,
            product: device.product_id,
        })
    }
}

/// Identity of a BMC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IpmiIdentity {
    /// The data of Get Device ID.
    pub device: DeviceId,
    /// GUID of the BMC, in the byte order of the wire.
    pub bmc_guid: Option<[u8; 16]>,
    /// GUID of the machine, in the byte order of the wire.
    pub system_guid: Option<[u8; 16]>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum IpmiIdentityStep {
    Device,
    BmcGuid,
    SystemGuid,
}

/// The requests for all three.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpmiIdentityScript {
    step: IpmiIdentityStep,
    found: IpmiIdentity,
}

impl IpmiIdentityScript {
    pub(super) fn start() -> (Self, IpmiRequest) {
        let found = IpmiIdentity {
            device: DeviceId::default(),
            bmc_guid: None,
            system_guid: None,
        };
        let step = IpmiIdentityStep::Device;
        (Self { step, found }, IpmiRequest::app(app::DEVICE_ID, &[]))
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        let (step, command) = match self.step {
            IpmiIdentityStep::Device if code != completion::OK => return refused(code),
            IpmiIdentityStep::Device => {
                let Some(device) = DeviceId::parse(data) else {
                    return invalid_response("a device identifier cut short");
                };
                self.found.device = device;
                (IpmiIdentityStep::BmcGuid, app::DEVICE_GUID)
            }
            IpmiIdentityStep::BmcGuid => {
                self.found.bmc_guid = identifier(code, data);
                (IpmiIdentityStep::SystemGuid, app::SYSTEM_GUID)
            }
            IpmiIdentityStep::SystemGuid => {
                self.found.system_guid = identifier(code, data);
                return IpmiOperationNext::Done(Ok(IpmiReply::Identity(self.found)));
            }
        };
        self.step = step;
        IpmiOperationNext::Send(IpmiRequest::app(command, &[]))
    }
}

/// A GUID that is refused or malformed counts as absent.
fn identifier(code: u8, data: &[u8]) -> Option<[u8; 16]> {
    let whole = code == completion::OK && data.len() == 16;
    whole.then(|| sixteen_at(data, 0)).flatten()
}

#[cfg(test)]
mod tests {
    use trivet_model::PowerError;

    use super::super::IpmiOperation;
    use super::super::tests::{is_invalid_response, run_script};
    use super::*;

    const DEVICE: [u8; 12] = [
        0, 0x20, 0x81, 0x82, 0x45, 0x02, 0xbf, 0x7c, 0x2a, 0xf0, 0x34, 0x12,
    ];

    #[test]
    fn all_three_are_requested_and_guids_may_be_absent() {
        let (requests, outcome) =
            run_script(IpmiOperation::Identity, |request| match request.command {
                app::DEVICE_ID => DEVICE.to_vec(),
                app::DEVICE_GUID => vec![0xc1],
                _ => [&[0][..], &[7; 16]].concat(),
            });
        assert_eq!(requests.len(), 3);
        let want = DeviceId {
            id: 0x20,
            revision: 1,
            major: 2,
            minor: 0x45,
            ipmi: (2, 0),
            maker: 10_876,
            product: 0x1234,
        };
        let Ok(IpmiReply::Identity(found)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(found.device, want);
        assert_eq!((found.bmc_guid, found.system_guid), (None, Some([7; 16])));
    }

    #[test]
    fn a_short_device_identifier_is_refused() {
        for length in 1..DEVICE.len() {
            let (_, outcome) = run_script(IpmiOperation::Identity, |_| DEVICE[..length].to_vec());
            assert!(is_invalid_response(&outcome), "{length}");
        }
        let (_, outcome) = run_script(IpmiOperation::Identity, |_| vec![0xd4]);
        assert_eq!(outcome, Err(PowerError::Refused { code: 0xd4 }));
    }

    #[test]
    fn an_identifier_of_another_length_is_none() {
        assert_eq!(identifier(0, &[1; 15]), None);
        assert_eq!(identifier(0, &[1; 17]), None);
        assert_eq!(identifier(0xc1, &[1; 16]), None);
        assert_eq!(identifier(0, &[1; 16]), Some([1; 16]));
    }
}
