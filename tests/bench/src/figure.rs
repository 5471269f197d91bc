//! Figures, printed as one line each.

/// Values of one figure from repeated runs, ours and the peer's.
#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    ours: Vec<f64>,
    peer: Vec<f64>,
}

impl Figure {
    /// A figure without values.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ours: Vec::new(),
            peer: Vec::new(),
        }
    }

    /// Adds the values of one run.
    pub fn add(&mut self, ours: f64, peer: f64) {
        self.ours.push(ours);
        self.peer.push(peer);
    }

    /// The median of ours.
    pub fn ours(&self) -> f64 {
        median(&self.ours)
    }

    /// The ratio of ours to the peer's, both medians.
    pub fn ratio(&self) -> f64 {
        median(&self.ours) / median(&self.peer)
    }

    /// Name, ours, peer, ratio, and the wider of both spreads, in percent of the
    /// median from the smallest to the largest run.
    pub fn line(&self) -> String {
        let spread = spread(&self.ours).max(spread(&self.peer)) * 100.0;
        format!(
            "{} {:.2} {:.2} {:.3} {spread:.1}%",
            self.name,
            median(&self.ours),
            median(&self.peer),
            self.ratio()
        )
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    (largest - smallest) / median(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_medians_their_ratio_and_the_spread() {
        let mut figure = Figure::new("bytes");
        for (ours, peer) in [(4.0, 10.0), (5.0, 10.0), (4.5, 8.0)] {
            figure.add(ours, peer);
        }
        assert_eq!(figure.line(), "bytes 4.50 10.00 0.450 22.2%");
    }

    #[test]
    fn a_figure_without_values_has_no_number() {
        assert!(Figure::new("none").ours().is_nan());
    }
}
