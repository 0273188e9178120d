//! The points of an experiment: each combination of its axes' points, with values of placeholders.
//!
//! Where: between the experiment's file and the command lines of servers and of kvblaster.
//! Invariant: a placeholder without a value is an error, never an empty text. A larger scale has
//! all points of the smaller scales.
//! Source: none.

use super::experiment::{Experiment, Point, Scale};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The maximum number of points of each axis at the scale `Smoke`.
const SMOKE_POINTS_MAX: usize = 2;

/// A value in an experiment's file: a text, or a number, which is used as a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// A whole number.
    Whole(i64),
    /// A number that is not whole.
    Number(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for Words {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Words::Whole(number) => number.fmt(out),
            Words::Number(number) => number.fmt(out),
            Words::Text(text) => text.fmt(out),
        }
    }
}

/// A combination of one point of each axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct At {
    /// The labels, one for each axis.
    pub labels: Vec<String>,
    /// The number of CPUs that this point needs for the servers.
    pub server_cpus: usize,
    vars: BTreeMap<String, String>,
}

/// Returns the points of an experiment at a scale. The label of the second axis changes fastest.
#[must_use]
pub fn points(experiment: &Experiment, scale: Scale) -> Vec<At> {
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
    /// `launch` replaces, such as `{port}`.
    ///
    /// # Errors
    /// A placeholder has no value, or a brace is not closed.
    pub fn resolve(&self, text: &str) -> Result<String, String> {
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
    #[must_use]
    pub fn is_at(&self, text: &str) -> bool {
        is_at(&self.labels, text)
    }
}

/// True if `text` names the point with these labels.
pub(crate) fn is_at(labels: &[String], text: &str) -> bool {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    words.len() <= labels.len() && words.iter().zip(labels).all(|(word, label)| word == label)
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
