//! Laws: distributions of sizes, times to live, batches and gaps, in the user's notation.
//!
//! Where: settings are parsed to laws, from which `draw` makes samplers.
//! Invariant: numbers can be drawn from every parsed law. If a printed law is parsed, the result is
//! the same law.
//! Source: the KV-Cache paper, table 2. In the table's two Pareto rows, scale and shape are
//! swapped, compared with the publication from which the rows come (see `curve`).

use super::curve::{Curve, Form};
use super::files::Files;
use super::grammar::{form, number};
use super::histogram::Histogram;
use super::limits::WorkloadError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LIST_MAX: usize = 1024;

/// The forms of laws, for `--help`.
pub(crate) const GRAMMAR: &str = "\
N, fixed:N                     always N
A-B, uniform:A,B               each whole number from A to B equally often
list:N=WEIGHT,N=WEIGHT,...     the listed numbers, in proportion to their weights
pareto:SCALE,SHAPE,MIN,MAX[,LOCATION]
                               generalized Pareto, cut off at MIN and MAX
gev:LOCATION,SCALE,SHAPE,MIN,MAX
                               generalized extreme value, cut off at MIN and MAX
exponential:MEAN,MIN,MAX       exponential, cut off at MIN and MAX
facebook[:MIN,MAX]             value sizes of Facebook's ETC pool: the published share of each
                               size up to 14 bytes, and generalized Pareto for greater sizes; cut
                               off at MIN and MAX (default 0 and 1000000)
etc                            the distribution of this setting in table 2 of the KV-Cache paper
                               (only for key-size, value-size and gap)
etc-as-printed                 like etc, but with scale and shape swapped, as the paper
                               prints them
file:PATH                      a histogram: one VALUE WEIGHT (or VALUE,WEIGHT) per line; each
                               VALUE in proportion to its WEIGHT
";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Law {
    Fixed(f64),
    Uniform(f64, f64),
    List(Vec<(f64, f64)>),
    Curve(Curve),
    File(PathBuf, Arc<Histogram>),
}

/// The use of a law by a setting: the allowed numbers, and the meaning of named forms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) is_whole: bool,
    /// The laws that the names `etc` and `etc-as-printed` mean.
    pub(crate) etc: Option<[&'static str; 2]>,
}

impl Usage {
    /// Returns a usage with whole numbers and without named forms.
    pub(crate) const fn whole(name: &'static str, unit: &'static str, min: f64, max: f64) -> Usage {
        Usage { name, unit, min, max, is_whole: true, etc: None }
    }
}

impl Law {
    pub(crate) fn parse(
        text: &str,
        usage: &Usage,
        files: &Files<'_>,
    ) -> Result<Law, WorkloadError> {
        let wrong = |why: &str| WorkloadError(format!("{}: {text}: {why}", usage.name));
        let named = match (text, usage.etc) {
            ("etc", Some([corrected, _])) => corrected,
            ("etc-as-printed", Some([_, printed])) => printed,
            _ => text,
        };
        if let Some(path) = named.strip_prefix("file:") {
            let path = files.path(path);
            let histogram = Histogram::read(files, &path, usage.name)?;
            histogram.within(usage.min, usage.max, usage.is_whole).map_err(|error| {
                WorkloadError(format!("{}: {}: {error}", usage.name, path.display()))
            })?;
            return Ok(Law::File(path, Arc::new(histogram)));
        }
        let law = match (named.split_once(':'), named.split_once('-')) {
            (Some((kind, rest)), _) => {
                Law::parse_form(kind, rest).map_err(|why| wrong(&(why + &form(GRAMMAR, kind))))?
            }
            (None, Some((from, to))) if number(from).is_some() && number(to).is_some() => {
                Law::Uniform(number(from).unwrap_or(0.0), number(to).unwrap_or(0.0))
            }
            (None, _) if named == "facebook" => {
                Law::parse_form("facebook", "0,1000000").map_err(|why| wrong(&why))?
            }
            (None, _) => {
                let fixed = number(named).map(Law::Fixed);
                fixed.ok_or_else(|| {
                    let form = form(GRAMMAR, named);
                    wrong(&format!("neither a number nor a known distribution{form}"))
                })?
            }
        };
        law.check(usage).map_err(|why| wrong(&why))?;
        Ok(law)
    }

    fn parse_form(kind: &str, rest: &str) -> Result<Law, String> {
        if kind == "list" {
            return list(rest);
        }
        let numbers: Option<Vec<f64>> = rest.split(',').map(number).collect();
        let numbers = numbers.ok_or("numbers are expected, with commas between them")?;
        let curve = |form, min, max| Ok(Law::Curve(Curve::new(form, min, max)?));
        match (kind, numbers.as_slice()) {
            ("fixed", &[value]) => Ok(Law::Fixed(value)),
            ("uniform", &[from, to]) => Ok(Law::Uniform(from, to)),
            ("pareto", &[scale, shape, min, max]) => {
                curve(Form::Pareto { location: 0.0, scale, shape }, min, max)
            }
            ("pareto", &[scale, shape, min, max, location]) => {
                curve(Form::Pareto { location, scale, shape }, min, max)
            }
            ("gev", &[location, scale, shape, min, max]) => {
                curve(Form::Gev { location, scale, shape }, min, max)
            }
            ("exponential", &[mean, min, max]) => curve(Form::Exponential { mean }, min, max),
            ("facebook", &[min, max]) => curve(Form::Facebook, min, max),
            ("fixed" | "uniform" | "pareto" | "gev" | "exponential" | "facebook", _) => {
                Err("wrong count of numbers".to_owned())
            }
            _ => Err("no such distribution".to_owned()),
        }
    }

    fn check(&self, usage: &Usage) -> Result<(), String> {
        let Usage { min, max, unit, is_whole, .. } = *usage;
        let (least, greatest) = self.bounds();
        if least > greatest {
            return Err("the first number must not be greater than the second".to_owned());
        }
        if !(min <= least && greatest <= max) {
            return Err(format!("must be {min} to {max} {unit}"));
        }
        let fractional = |value: &f64| is_whole && value.fract() != 0.0;
        let some = match self {
            Law::List(pairs) => pairs.iter().map(|(value, _)| value).find(|one| fractional(one)),
            _ => [&least, &greatest].into_iter().find(|one| fractional(one)),
        };
        some.map_or(Ok(()), |value| Err(format!("{value} is not a whole number of {unit}")))
    }

    /// Returns the path and the histogram of the file from which the law was read, if any.
    pub(crate) fn file(&self) -> Option<(&Path, &Histogram)> {
        if let Law::File(path, histogram) = self { Some((path, histogram)) } else { None }
    }

    pub(crate) fn bounds(&self) -> (f64, f64) {
        let ends = |pairs: &[(f64, f64)]| {
            let drawn = || pairs.iter().filter(|(_, weight)| *weight > 0.0).map(|pair| pair.0);
            (drawn().fold(f64::INFINITY, f64::min), drawn().fold(f64::NEG_INFINITY, f64::max))
        };
        match self {
            Law::Fixed(value) => (*value, *value),
            Law::Uniform(from, to) => (*from, *to),
            Law::List(pairs) => ends(pairs),
            Law::Curve(curve) => curve.bounds(),
            Law::File(_, histogram) => ends(&histogram.pairs),
        }
    }
}

fn list(text: &str) -> Result<Law, String> {
    let mut pairs = Vec::new();
    for pair in text.split(',') {
        let split = pair.split_once('=').unwrap_or((pair, "1"));
        let (Some(value), Some(weight)) = (number(split.0), number(split.1)) else {
            return Err(format!("{pair}: must be N=WEIGHT"));
        };
        if !(0.0..=1e12).contains(&weight) {
            return Err(format!("{pair}: a weight must be 0 to 1e12"));
        }
        pairs.push((value, weight));
    }
    if pairs.len() > LIST_MAX {
        return Err(format!(
            "more than {LIST_MAX} numbers: write them to a file, and use file:PATH"
        ));
    }
    if pairs.iter().all(|(_, weight)| *weight == 0.0) {
        return Err("no weight is above 0".to_owned());
    }
    Ok(Law::List(pairs))
}

impl fmt::Display for Law {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Law::Fixed(value) => write!(out, "{value}"),
            Law::Uniform(from, to) => write!(out, "uniform:{from},{to}"),
            Law::List(pairs) => {
                let pairs = pairs.iter().map(|(value, weight)| format!("{value}={weight}"));
                write!(out, "list:{}", pairs.collect::<Vec<_>>().join(","))
            }
            Law::Curve(curve) => write!(out, "{curve}"),
            Law::File(path, _) => write!(out, "file:{}", path.display()),
        }
    }
}
