//! The noise of the machine: the greatest difference between two equal servers, by figure.
//!
//! Where: above the overview, and in the section of the experiment `claims::NOISE`.
//! Invariant: the greatest difference over all points is reported, not the mean.
//! Source: Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation".

use super::findings::ratio;
use super::section::Section;
use crate::lab::claims::{AGAIN, NOISE};
use crate::lab::estimate::{Estimate, ROUNDS_MIN};
use crate::report::table::Table;
use crate::words::percent;

/// The greatest difference, over all points, between two equal servers in a figure.
struct Noise<'a> {
    figure: &'a str,
    server: &'a str,
    at: Vec<String>,
    ratio: Estimate,
}

impl Noise<'_> {
    /// The factor between the two servers, at least 1.
    fn factor(&self) -> f64 {
        self.ratio.value.max(1.0 / self.ratio.value)
    }
}

fn all(section: &Section) -> Vec<Noise<'_>> {
    let Some(experiment) = section.experiment.as_ref().filter(|_| section.name == NOISE) else {
        return Vec::new();
    };
    let record = &section.record;
    let points = record.points(experiment);
    let mut all = Vec::new();
    for figure in &experiment.figures {
        for again in &experiment.servers {
            let Some(server) = again.name.strip_suffix(AGAIN) else { continue };
            let noise = |at: &Vec<String>| {
                let ratio = ratio(record, [&again.name, server], at, &figure.y)?;
                Some(Noise { figure: &figure.y, server, at: at.clone(), ratio })
            };
            let noises = points.iter().filter_map(noise);
            all.extend(noises.max_by(|one, other| one.factor().total_cmp(&other.factor())));
        }
    }
    all
}

/// Tells the greatest noise of each figure in a sentence without a full stop.
pub(crate) fn sentence(sections: &[Section]) -> String {
    let noises: Vec<Noise<'_>> = sections.iter().flat_map(all).collect();
    if noises.is_empty() {
        return format!("The noise was not measured; `kvblaster lab run {NOISE}` measures it");
    }
    let mut greatest: Vec<(&str, f64)> = Vec::new();
    for noise in &noises {
        match greatest.iter_mut().find(|(figure, _)| *figure == noise.figure) {
            Some((_, factor)) => *factor = factor.max(noise.factor()),
            None => greatest.push((noise.figure, noise.factor())),
        }
    }
    let words =
        greatest.iter().map(|(figure, factor)| format!("{} in {figure}", percent(factor - 1.0)));
    let words: Vec<String> = words.collect();
    let few = noises.iter().any(|noise| noise.ratio.rounds < ROUNDS_MIN);
    let few =
        if few { format!(", measured in fewer than {ROUNDS_MIN} rounds") } else { String::new() };
    format!("Noise: two equal servers differed by at most {}{few}", words.join(", "))
}

/// Returns a table of the noise, which has no rows if the experiment is not `NOISE`.
pub(crate) fn table(section: &Section) -> Table {
    let head =
        ["figure", "server", "ratio of two equal servers", "point with the greatest difference"];
    let mut table = Table::new(&head);
    for noise in all(section) {
        let at = section.experiment.as_ref().map(|one| one.place(&noise.at)).unwrap_or_default();
        let ratio = noise.ratio.as_ratio();
        table.row(&[noise.figure.to_owned(), noise.server.to_owned(), ratio, at]);
    }
    table
}
