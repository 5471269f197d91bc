//! The edit distance of two words, to suggest the one that was probably intended.

/// Edits from one word to the other (optimal string alignment): a character inserted, removed,
/// changed, or swapped with its neighbour. Its cost is the product of both lengths, so callers
/// bound them.
pub fn edit_distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for row in 1..=left.len() {
        let above = &rows[row - 1];
        let mut line = vec![row];
        for column in 1..=right.len() {
            let change = usize::from(left[row - 1] != right[column - 1]);
            let mut least = (above[column - 1] + change)
                .min(above[column] + 1)
                .min(line[column - 1] + 1);
            let swapped = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if swapped {
                least = least.min(rows[row - 2][column - 2] + 1);
            }
            line.push(least);
        }
        rows.push(line);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        assert_eq!(edit_distance("listen", "listen"), 0);
        assert_eq!(edit_distance("lisen", "listen"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("abc", ""), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("tfpt", "tftp"), 1);
    }
}
