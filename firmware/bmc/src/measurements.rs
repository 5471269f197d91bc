//! How requests to BMCs ended and how long they took, to be counted.

use trivet_model::{Measurement, PowerError};

use crate::Bmcs;
use crate::bmcs::BmcExchange;
use crate::protocol::BmcReach;

/// The requests that have ended since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct BmcMeasurements(Vec<Measurement>);

impl BmcMeasurements {
    /// A request has ended. What changes the record of the node only is not counted.
    pub(crate) fn record(
        &mut self,
        exchange: &BmcExchange,
        took_ms: u64,
        error: Option<&PowerError>,
    ) {
        let Some(protocol) = exchange.protocol else {
            return;
        };
        if exchange.reach != BmcReach::Record {
            let failure = error.map(PowerError::kind);
            self.0.push(Measurement::BmcRequest {
                protocol,
                failure,
                took_ms,
            });
        }
    }
}

impl Bmcs {
    /// The requests that have ended since the last call, in order.
    pub fn take_measurements(&mut self) -> Vec<Measurement> {
        std::mem::take(&mut self.measurements.0)
    }
}
