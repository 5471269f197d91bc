//! A simulated rack: machines, BMCs, wires, faults.
