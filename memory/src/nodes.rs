//! The NUMA nodes that share a store's segments, and the node of each column.
//!
//! ```text
//! segments   | node 0's ... | node 1's ... | node 0's ... | node 1's ... | ...
//!            |   initial segments          |  segments that a higher limit adds
//! ```
//!
//! Where: passed to the constructor of a store. A column takes free segments of its own node, or,
//! if there is none, of the nearest node with free segments.
//! Invariant: a segment's node never changes. No memory policy is set if there is only one node.
//! Source: mbind(2); the KV-Cache paper, section 4.1.3.

/// The nodes, and each column's node. A node's place is the node's index in `numbers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    numbers: Vec<usize>,
    /// Entry `n` lists the places of all nodes by their distance from the node at place `n`.
    nearest: Vec<Vec<usize>>,
    /// For each column, the place of the column's node.
    of_columns: Vec<usize>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes { numbers: vec![0], nearest: vec![vec![0]], of_columns: vec![0] }
    }
}

impl Nodes {
    /// Makes the nodes. `of_columns` has, for each column, the system's number of the column's
    /// node. `distance(from, to)` returns the distance from node `from` to the memory of node `to`.
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

    /// The place (index in `numbers`) of a column's node.
    #[inline]
    #[must_use]
    pub fn of_column(&self, column: usize) -> usize {
        self.of_columns[column % self.of_columns.len()]
    }

    /// The places of all nodes, sorted by their distance from the node at `place`.
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
