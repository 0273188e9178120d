//! The memory nodes between which a store's segments are divided, and the node of each column.
//!
//! ```text
//! segments   | node 0's ... | node 1's ... | node 0's ... | node 1's ... | ...
//!            |   initial segments          |  segments that a higher limit adds
//! ```
//!
//! Where: passed to the constructor of a store. A column takes a free segment of its own node, or
//! of the nearest node that has one. A freed segment returns to its own node's list.
//! Invariant: a segment's node never changes. With one node, no system call sets a memory policy.
//! Source: mbind(2); the KV-Cache paper, section 4.1.3.

/// The nodes, and the columns on them. A node's place is its index in `numbers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    numbers: Vec<usize>,
    /// For each node, the places of all nodes, nearest first, beginning with the node's own place.
    nearest: Vec<Vec<usize>>,
    /// The place of each column's node.
    of_columns: Vec<usize>,
}

impl Default for Nodes {
    /// Makes a single node, which has all columns.
    fn default() -> Nodes {
        Nodes { numbers: vec![0], nearest: vec![vec![0]], of_columns: vec![0] }
    }
}

impl Nodes {
    /// Makes the nodes. `of_columns` has the system's number of each column's node.
    /// `distance(from, to)` returns how far the memory of node `to` is from node `from`.
    #[must_use]
    pub fn new(of_columns: &[usize], distance: impl Fn(usize, usize) -> u32) -> Nodes {
        let mut numbers = of_columns.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() < 2 {
            return Nodes::default();
        }
        let nearest_to = |own: usize| {
            let mut places: Vec<usize> = (0..numbers.len()).collect();
            places.sort_by_key(|&at| (at != own, distance(numbers[own], numbers[at])));
            places
        };
        let nearest = (0..numbers.len()).map(nearest_to).collect();
        let place = |number: &usize| numbers.binary_search(number).unwrap_or(0);
        let of_columns = of_columns.iter().map(place).collect();
        Nodes { numbers, nearest, of_columns }
    }

    /// Number of nodes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The place of a column's node.
    #[inline]
    #[must_use]
    pub fn of_column(&self, column: usize) -> usize {
        self.of_columns[column % self.of_columns.len()]
    }

    /// The places of all nodes, nearest to the node at `place` first.
    #[inline]
    pub(crate) fn nearest(&self, place: usize) -> &[usize] {
        &self.nearest[place]
    }

    /// The system's number of the node at `place`.
    #[must_use]
    pub fn number(&self, place: usize) -> usize {
        self.numbers[place]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn columns_have_nodes_and_nodes_the_nearest_first() {
        let distance = |from: usize, to: usize| match (from, to) {
            (2, 7) | (7, 2) => 15,
            _ if from == to => 10,
            _ => 30,
        };
        let nodes = Nodes::new(&[4, 2, 7, 4], distance);
        assert_eq!(nodes.count(), 3);
        assert_eq!([0, 1, 2, 3, 4].map(|column| nodes.of_column(column)), [1, 0, 2, 1, 1]);
        assert_eq!([0, 1, 2].map(|at| nodes.number(at)), [2, 4, 7]);
        assert_eq!([0, 1, 2].map(|at| nodes.nearest(at)), [[0, 2, 1], [1, 0, 2], [2, 0, 1]]);
    }

    #[test]
    fn columns_of_one_node_or_none_have_one_that_needs_no_name() {
        for of_columns in [&[][..], &[3], &[3, 3]] {
            assert_eq!(Nodes::new(of_columns, |_, _| 10), Nodes::default());
        }
        assert_eq!(Nodes::default().of_column(5), 0);
    }
}
