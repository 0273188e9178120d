//! The points of an experiment: each combination of its axes' points, with values of placeholders.
//!
//! Where: between the experiment's file and the command lines of servers and of kvblaster.
//! Invariant: a placeholder without a value is an error, never an empty text. A larger scale has
//! all points of the smaller scales.
//! Source: none.

use super::experiment::{Claim, Experiment, Point, Scale};
use std::collections::BTreeMap;

/// The maximum number of points of each axis at the scale `Smoke`.
const SMOKE_POINTS_MAX: usize = 2;

/// A combination of one point of each axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct At {
    /// The labels, one for each axis.
    pub labels: Vec<String>,
    /// The number of CPUs that this point needs for the servers.
    pub server_cpus: usize,
    vars: BTreeMap<String, String>,
}

/// Returns the points of an experiment at a scale. The label of the second axis changes fastest.
pub(crate) fn points(experiment: &Experiment, scale: Scale) -> Vec<At> {
    let scaled = match scale {
        Scale::Smoke | Scale::Quick => &experiment.vars.quick,
        Scale::Default => &BTreeMap::new(),
        Scale::Full => &experiment.vars.full,
    };
    let mut vars = BTreeMap::new();
    for (name, value) in experiment.vars.always.iter().chain(scaled) {
        vars.insert(name.clone(), value.to_string());
    }
    let mut all = vec![At { vars, ..At::default() }];
    for (nth, axis) in experiment.axes.iter().enumerate() {
        let at_scale = |point: &&Point| point.scale <= scale.max(Scale::Quick);
        let most = if scale == Scale::Smoke { SMOKE_POINTS_MAX } else { usize::MAX };
        let points: Vec<&Point> = axis.points.iter().filter(at_scale).take(most).collect();
        let with = |before: &At, point: &Point| {
            let mut at = before.clone();
            let label = point.at.to_string();
            let place = if nth == 0 { "at" } else { "at2" };
            at.vars.insert(place.to_owned(), label.clone());
            let vars = point.vars.iter().map(|(name, value)| (name.clone(), value.to_string()));
            at.vars.extend(vars);
            at.labels.push(label);
            at.server_cpus = at.server_cpus.max(point.server_cpus);
            at
        };
        all = all.iter().flat_map(|at| points.iter().map(|point| with(at, point))).collect();
    }
    all
}

/// The labels of an experiment's points at a scale.
pub(super) fn labels(experiment: &Experiment, scale: Scale) -> Vec<Vec<String>> {
    points(experiment, scale).into_iter().map(|at| at.labels).collect()
}

impl At {
    /// Replaces each `{name}` in `text` by its value. `text` must not have placeholders that
    /// `launch` replaces, such as `{port}`. Fails if a placeholder has no value, or a brace is not
    /// closed.
    pub(crate) fn resolve(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("{text}: a brace is not closed"))?;
            out.push_str(before);
            match self.vars.get(name) {
                // A value may have placeholders, but the values of these placeholders have none.
                Some(value) if value.contains('{') => {
                    let inner = At { vars: self.plain(), ..At::default() };
                    out.push_str(&inner.resolve(value)?);
                }
                Some(value) => out.push_str(value),
                None => return Err(format!("{text}: the placeholder {{{name}}} has no value")),
            }
            rest = after;
        }
        Ok(out + rest)
    }

    fn plain(&self) -> BTreeMap<String, String> {
        let vars = self.vars.iter().filter(|(_, value)| !value.contains('{'));
        vars.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// True if `text` names this point: the labels of all axes, separated by `,`, or only the label
    /// of the first axis.
    pub(crate) fn is_at(&self, text: &str) -> bool {
        is_at(&self.labels, text)
    }
}

/// True if `text` names the point with these labels.
pub(crate) fn is_at(labels: &[String], text: &str) -> bool {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    words.len() <= labels.len() && words.iter().zip(labels).all(|(word, label)| word == label)
}

/// The name of a server, and the labels of a point at which the server is measured.
pub(crate) type Side = (String, Vec<String>);

/// Splits a side of a claim into the server's name and the point, if the side names a point.
pub(crate) fn side_of(side: &str) -> (&str, Option<&str>) {
    match side.split_once('@') {
        Some((server, point)) => (server.trim(), Some(point.trim())),
        None => (side.trim(), None),
    }
}

/// Returns the servers and points that `claim.of` and `claim.to` name. Both lists have the same
/// length: a point without a counterpart in the other list is left out.
pub(super) fn sides(claim: &Claim, points: &[Vec<String>]) -> (Vec<Side>, Option<Vec<Side>>) {
    let all = |side: &str| {
        let (server, point) = side_of(side);
        let named = points.iter().filter(|at| point.is_none_or(|point| is_at(at, point)));
        named.map(|at| (server.to_owned(), at.clone())).collect::<Vec<Side>>()
    };
    let Some(to) = &claim.to else { return (all(&claim.of), None) };
    // The points of a pair differ at most in labels that both sides of the claim name.
    let named = |side: &str| side_of(side).1.map_or(0, |point| point.split(',').count());
    let (free, to) = (named(&claim.of).min(named(to)), all(to));
    let pair = |of: Side| {
        let to = to.iter().find(|to| to.1[free..] == of.1[free..])?.clone();
        (of != to).then_some((of, to))
    };
    let (of, to) = all(&claim.of).into_iter().filter_map(pair).unzip();
    (of, Some(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(vars: &[(&str, &str)]) -> At {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        At { labels: vec!["64".into(), "pinned".into()], vars: vars.collect(), server_cpus: 0 }
    }

    #[test]
    fn a_placeholder_has_a_value_or_is_an_error() {
        let at = at(&[("keys", "100k"), ("load", "-w uniform --keys {keys}")]);
        assert_eq!(at.resolve("{load} -c 4").unwrap(), "-w uniform --keys 100k -c 4");
        assert_eq!(at.resolve("{kye}").unwrap_err(), "{kye}: the placeholder {kye} has no value");
        assert_eq!(at.resolve("{keys").unwrap_err(), "{keys: a brace is not closed");
    }

    #[test]
    fn a_point_is_named_by_its_labels() {
        let at = at(&[]);
        assert!(at.is_at("64") && at.is_at("64, pinned"));
        assert!(!at.is_at("6") && !at.is_at("64,free") && !at.is_at("64,pinned,x"));
    }
}
