//! Reads an experiment from its file, and checks that the fields of the file agree.
//!
//! Where: between the file and all other code of the lab.
//! Invariant: a file is refused if it has an unknown field, an axis without points, a claim about
//! an unknown figure or server, or an unknown placeholder.

use super::experiment::{Experiment, Method, Need, Scale, Server, Way};
use super::points::{side_of, sides};
use super::{figures, points, simulated};

/// The maximum number of servers of an experiment.
const SERVERS_MAX: usize = 16;
/// The maximum number of points of an experiment: the product of its axes' numbers of points.
const POINTS_MAX: usize = 512;

impl Experiment {
    /// Reads an experiment from the text of its file. Fails if the text is no experiment.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, String> {
        let mut experiment: Experiment =
            toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        name.clone_into(&mut experiment.name);
        experiment.check().map_err(|why| format!("{name}: {why}"))?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), String> {
        let is_named = |name: &&str| self.servers.iter().any(|server| server.name == **name);
        if self.servers.is_empty() || self.servers.len() > SERVERS_MAX {
            return Err(format!("servers: give 1 to {SERVERS_MAX} servers"));
        }
        if let Some(twice) = (1..self.servers.len())
            .find(|at| self.servers[..*at].iter().any(|one| one.name == self.servers[*at].name))
        {
            return Err(format!("servers: {} is named twice", self.servers[twice].name));
        }
        self.servers.iter().try_for_each(Server::check)?;
        simulated::check(self)?;
        if self.figures.is_empty() {
            return Err("figures: give at least one figure".to_owned());
        }
        let of_claims = self.claims.iter().map(|claim| &claim.figure);
        for name in self.figures.iter().map(|figure| &figure.y).chain(of_claims) {
            if figures::named(name).is_none() {
                return Err(format!(
                    "{name}: no such figure; the figures are {}",
                    figures::listed()
                ));
            }
        }
        let is_lone_run = self.drive.method == Method::Run && self.drive.beside.is_empty();
        if self.drive.profile && !(is_lone_run && self.needs.contains(&Need::Perf)) {
            let why = "drive: `profile` needs the method `run`, no load in `beside`, and `perf` \
                       in the list `needs`";
            return Err(why.to_owned());
        }
        for claim in &self.claims {
            if claim.at_least.is_none() && claim.at_most.is_none() {
                return Err(format!("claims: \"{}\" has neither at_least nor at_most", claim.says));
            }
            for side in std::iter::once(&claim.of).chain(&claim.to) {
                let (server, point) = side_of(side);
                if !is_named(&server) {
                    return Err(format!("claims: {server} is no server of this experiment"));
                }
                if let Some(point) = point.filter(|at| !self.has_point(at)) {
                    return Err(format!("claims: {point} is no point of the axes"));
                }
            }
            if sides(claim, &points::labels(self, Scale::Full)).0.is_empty() {
                return Err(format!("claims: \"{}\" compares a server with itself", claim.says));
            }
        }
        self.check_points()
    }

    fn check_points(&self) -> Result<(), String> {
        if self.axes.len() > 2 {
            return Err("axes: give at most two axes".to_owned());
        }
        if let Some(empty) = self.axes.iter().find(|axis| axis.points.is_empty()) {
            return Err(format!("axes: the axis {} has no points", empty.name));
        }
        // The number of points is checked before `points` makes the points, because two long axes
        // can have more points than fit in memory.
        let most: usize = self.axes.iter().map(|axis| axis.points.len()).product();
        if most > POINTS_MAX {
            return Err(format!(
                "axes: the product of their numbers of points is {most}; the maximum is \
                 {POINTS_MAX}"
            ));
        }
        for scale in [Scale::Smoke, Scale::Quick, Scale::Default, Scale::Full] {
            let all = points::points(self, scale);
            if all.is_empty() {
                return Err(
                    "axes: each axis needs at least one point with scale = \"quick\"".to_owned()
                );
            }
            for (point, server) in
                all.iter().flat_map(|at| self.servers.iter().map(move |s| (at, s)))
            {
                for flags in [&self.drive.flags, &self.drive.prepare, &self.drive.beside] {
                    point.resolve(flags)?;
                }
                for words in server.templates() {
                    point.resolve(words)?;
                }
            }
        }
        Ok(())
    }

    fn has_point(&self, text: &str) -> bool {
        points::points(self, Scale::Full).iter().any(|point| point.is_at(text))
    }
}

impl Server {
    fn check(&self) -> Result<(), String> {
        let of_link = [&self.rps, &self.irq, &self.coalesce_us];
        if !self.way.is_linked() && of_link.iter().any(|field| !field.is_empty()) {
            return Err(format!(
                "servers: {}: rps, irq and coalesce_us need a `way` that begins with `link`",
                self.name
            ));
        }
        if self.way != Way::Tcp && !self.proxy.is_empty() {
            return Err(format!("servers: {}: a proxy needs way = \"tcp\"", self.name));
        }
        Ok(())
    }
}
