//! The machine's NUMA nodes, and the distances between processors.
//!
//! Where: `run` reads the nodes before it starts the columns, and `stats columns` reads them again.
//! Invariant: if the system does not report nodes, all processors count as one node.
//! Source: the kernel's `Documentation/ABI/stable/sysfs-devices-node`, on `cpulist` and `distance`.
//! `distance` lists the distances to all nodes, in their order. A node's distance to itself is 10.

use std::fs;
use std::path::Path;

use columns::Neighbour;
use memory::plant::{Fault, is};

/// The nodes, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes(Vec<Node>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    number: usize,
    cpus: Vec<usize>,
    /// The distance from this node to each node, in the order of the nodes' numbers.
    distances: Vec<u32>,
}

impl Nodes {
    /// Reads the nodes from the system. `root` is `/`, except in tests.
    pub(crate) fn read(root: &Path) -> Nodes {
        let Ok(entries) = fs::read_dir(root.join("sys/devices/system/node")) else {
            return Nodes::default();
        };
        let told = entries.flatten().filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let text = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
            Some((number, text("cpulist")?, text("distance")?))
        });
        Nodes::parse(told)
    }

    fn parse(told: impl Iterator<Item = (usize, String, String)>) -> Nodes {
        let node = |(number, cpus, distances): (usize, String, String)| Node {
            number,
            cpus: cpus.trim().split(',').filter_map(range).flatten().collect(),
            distances: distances.split_whitespace().map_while(|it| it.parse().ok()).collect(),
        };
        let mut nodes: Vec<Node> = told.map(node).collect();
        nodes.sort_by_key(|node| node.number);
        Nodes(nodes)
    }

    pub(crate) fn of(&self, cpu: usize) -> Option<usize> {
        self.place(cpu).map(|at| self.0[at].number)
    }

    /// The distance from the node of processor `from` to the node of processor `to`.
    fn distance(&self, from: usize, to: usize) -> Option<u32> {
        self.0[self.place(from)?].distances.get(self.place(to)?).copied()
    }

    fn place(&self, cpu: usize) -> Option<usize> {
        self.0.iter().position(|node| node.cpus.contains(&cpu))
    }

    /// The nodes of columns that are pinned to `cpus`. One node if any column's node is unknown.
    pub(crate) fn of_columns(&self, columns: usize, cpus: &[usize]) -> memory::nodes::Nodes {
        let node = |column: usize| self.of(*cpus.get(column % cpus.len().max(1))?);
        let numbers: Option<Vec<usize>> = (0..columns).map(node).collect();
        let at = |number: usize| self.0.iter().position(|node| node.number == number);
        let far = |from, to| self.0[at(from)?].distances.get(at(to)?).copied();
        let distance = |from, to| far(from, to).unwrap_or(u32::MAX);
        memory::nodes::Nodes::new(&numbers.unwrap_or_default(), distance)
    }

    /// The other columns, the nearest first. Among equally near columns, the column that follows
    /// `own` comes first. Columns are pinned to `cpus` (see `Settings::cpus`).
    pub(crate) fn neighbours(&self, own: usize, columns: usize, cpus: &[usize]) -> Vec<Neighbour> {
        let cpu = |column: usize| cpus.get(column % cpus.len().max(1)).copied();
        let node = |column: usize| cpu(column).and_then(|cpu| self.of(cpu));
        let distance = |column: usize| self.distance(cpu(own)?, cpu(column)?);
        let mut others: Vec<usize> = (1..columns).map(|step| (own + step) % columns).collect();
        others.sort_by_key(|&column| match is(Fault::FarAsNear) {
            true => 0,
            false => distance(column).unwrap_or(0),
        });
        let neighbour = |column| Neighbour { column, is_near: node(column) == node(own) };
        others.into_iter().map(neighbour).collect()
    }
}

/// Parses the number of a processor (`3`), or a range of numbers (`0-3`).
fn range(text: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes two processor packages of two nodes each, in no order. One node has no processor.
    fn made_up() -> Nodes {
        let told = [
            (4, "12-15\n", "32 32 21 10\n"),
            (0, "0-2,8\n", "10 21 32 32\n"),
            (2, "3,9-11\n", "32 32 10 21\n"),
            (1, "\n", "21 10 32 32\n"),
        ];
        Nodes::parse(told.map(|(number, cpus, far)| (number, cpus.into(), far.into())).into_iter())
    }

    #[test]
    fn processors_have_nodes_and_nodes_distances() {
        let nodes = made_up();
        assert_eq!([0, 8, 3, 10, 15].map(|cpu| nodes.of(cpu)), [0, 0, 2, 2, 4].map(Some));
        assert_eq!(nodes.of(7), None);
        assert_eq!(nodes.distance(0, 8), Some(10));
        assert_eq!(nodes.distance(3, 12), Some(21));
        assert_eq!(nodes.distance(0, 12), Some(32));
        assert_eq!(nodes.distance(0, 7), None);
    }

    #[test]
    fn the_nearest_column_comes_first_and_the_next_of_equals() {
        let columns = |found: &[Neighbour]| found.iter().map(|it| it.column).collect::<Vec<_>>();
        let near = |found: &[Neighbour]| found.iter().filter(|it| it.is_near).count();
        let (nodes, cpus) = (made_up(), [0, 3, 12, 8, 9, 13]);
        let of_0 = nodes.neighbours(0, 6, &cpus);
        assert_eq!((columns(&of_0), near(&of_0)), (vec![3, 1, 2, 4, 5], 1));
        let of_1 = nodes.neighbours(1, 6, &cpus);
        assert_eq!((columns(&of_1), near(&of_1)), (vec![4, 2, 5, 3, 0], 1));
        // If there are more columns than processors, the first processor is used again.
        let of_2 = nodes.neighbours(2, 4, &cpus[..3]);
        assert_eq!((columns(&of_2), near(&of_2)), (vec![1, 3, 0], 0));
    }

    #[test]
    fn memory_is_divided_between_the_nodes_of_columns() {
        let (one, cpus) = (memory::nodes::Nodes::default(), [0, 3, 12, 8]);
        let nodes = made_up().of_columns(5, &cpus);
        assert_eq!(
            nodes,
            memory::nodes::Nodes::new(&[0, 2, 4, 0, 0], |from, to| {
                if from + to == 6 { 21 } else { 32 }
            })
        );
        assert_eq!((nodes.count(), [0, 1, 2, 3, 4].map(|it| nodes.of_column(it))), {
            (3, [0, 1, 2, 0, 0])
        });
        assert_eq!(made_up().of_columns(2, &[8, 1]), one, "all on one node");
        assert_eq!(made_up().of_columns(2, &[0, 7]), one, "7 is of no node");
        assert_eq!(made_up().of_columns(2, &[]), one, "not pinned");
        assert_eq!(Nodes::default().of_columns(2, &cpus), one);
    }

    #[test]
    fn without_pinning_or_nodes_all_are_near() {
        for (nodes, cpus) in [(made_up(), &[][..]), (Nodes::default(), &[0, 3, 12])] {
            let found = nodes.neighbours(1, 3, cpus);
            let columns = [2, 0].map(|column| Neighbour { column, is_near: true });
            assert_eq!(found, columns);
        }
    }

    #[test]
    fn this_machine_tells_what_can_be_read() {
        let nodes = Nodes::read(Path::new("/"));
        assert!(nodes.0.iter().all(|node| node.distances.len() == nodes.0.len()), "{nodes:?}");
    }
}
