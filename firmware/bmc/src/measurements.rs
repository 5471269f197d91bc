//! How requests to BMCs ended and how long they took, to be counted.

use trivet_model::{Measurement, PowerError, Tick};

use crate::Bmcs;
use crate::bmcs::BmcExchange;
use crate::outcome::BmcOutcome;
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
    /// A request has ended: it is counted, and how well the BMC answers is recorded. Only the
    /// time of a power order measures the BMC.
    pub(crate) fn record_end(
        &mut self,
        now: Tick,
        exchange: &BmcExchange,
        error: Option<&PowerError>,
    ) {
        let took_ms = now.since_ms(exchange.requested_at);
        self.measurements.record(exchange, took_ms, error);
        if exchange.reach != BmcReach::Bmc {
            return;
        }
        let node = exchange.node;
        let took_ms = exchange.order.map(|_| took_ms);
        if let Some(health) = self.health.record(node, took_ms, error) {
            self.outcomes
                .push_back(BmcOutcome::HealthChanged { node, health });
        }
    }

    /// The requests that have ended since the last call, in order.
    pub fn take_measurements(&mut self) -> Vec<Measurement> {
        std::mem::take(&mut self.measurements.0)
    }
}
