//! The verbs of `kvblaster lab`.
//!
//! Where: `main` calls `run`, and prints the text that `run` returns.
//! Invariant: measurements that need neither root nor a missing program run in any case.

use super::card;
use super::experiment::{Experiment, Scale};
use super::flags::{Plan, ReportFlags, RunFlags, Verb};
use super::library;
use super::report;
use super::rounds::{self, Lab};
use crate::flags::exit::Exit;
use crate::run;
use crate::words::values::cpu_list;
use crate::words::{Failure, quoted, sentence, wrapped};
use std::fmt::Write;

impl Plan {
    /// Executes the verb. Returns the text to print, and the exit status. Fails if an experiment is
    /// unknown or wrong, or data cannot be written.
    pub fn run(&self) -> Result<(String, Exit), Failure> {
        match &self.verb {
            Verb::List { library } => {
                Ok((listed(&library::all(library.experiments.as_deref())?), Exit::Met))
            }
            Verb::Show { name, library } => {
                let names = std::slice::from_ref(name);
                let found = library::named(names, library.experiments.as_deref())?;
                Ok((found.iter().map(shown).collect(), Exit::Met))
            }
            Verb::Run(flags) => flags.run(),
            Verb::Report(flags) => flags.run(),
        }
    }
}

impl ReportFlags {
    fn run(&self) -> Result<(String, Exit), Failure> {
        let more = (self.markdown.as_deref(), self.library.experiments.as_deref());
        Ok((report::write(&self.folder, self.out.as_deref(), more)?, Exit::Met))
    }
}

impl RunFlags {
    fn run(&self) -> Result<(String, Exit), Failure> {
        let folder = self.library.experiments.as_deref();
        let experiments =
            if self.all { library::all(folder)? } else { library::named(&self.names, folder)? };
        let lab = self.lab()?;
        let ended = rounds::run(&experiments, &lab)?;
        let mut text = format!("{} measurements", ended.measured);
        if ended.failures > 0 {
            let _ = write!(text, ", and {} more failed", ended.failures);
        }
        if ended.is_interrupted {
            text += "; the lab was stopped: --resume continues it";
        }
        let exit =
            if ended.is_interrupted || ended.failures > 0 { Exit::NotMet } else { Exit::Met };
        Ok((text + "\n", exit))
    }

    fn lab(&self) -> Result<Lab, Failure> {
        card::check(&self.interface)?;
        let unknown = "cannot read on which CPUs kvblaster may run";
        let own = net::thread_cpus().map_err(|error| format!("{unknown}: {error}"))?;
        let half = own.len().div_ceil(2);
        let server_cpus = match self.server_cpus.is_empty() {
            true => own[..half].to_vec(),
            false => self.server_cpus.clone(),
        };
        let rest = || {
            let rest = own.iter().copied().filter(|cpu| !server_cpus.contains(cpu));
            let rest: Vec<usize> = rest.collect();
            // kvblaster shares the CPUs with the servers if the servers have all CPUs.
            if rest.is_empty() { own.clone() } else { rest }
        };
        let client_cpus =
            if self.client_cpus.is_empty() { rest() } else { self.client_cpus.clone() };
        run::prepare::has_cpus(&[("server-cpus", &server_cpus), ("client-cpus", &client_cpus)])?;
        let (scale, flag) = match () {
            () if self.smoke => (Scale::Smoke, " --smoke"),
            () if self.quick => (Scale::Quick, " --quick"),
            () if self.full => (Scale::Full, " --full"),
            () => (Scale::Default, ""),
        };
        let folder = self.library.experiments.as_ref();
        let folder = folder.map(|folder| quoted(&folder.to_string_lossy()));
        let folder = folder.map_or(String::new(), |folder| format!(" --experiments {folder}"));
        // The record has the command that repeats the experiment with the same rounds and CPUs.
        let rounds = self.rounds.map_or(String::new(), |rounds| format!(" --rounds {rounds}"));
        let pinned = |flag: &str, cpus: &[usize]| {
            if cpus.is_empty() { String::new() } else { format!(" --{flag} {}", cpu_list(cpus)) }
        };
        let pinned =
            pinned("server-cpus", &self.server_cpus) + &pinned("client-cpus", &self.client_cpus);
        let cards = self.interface.iter().map(|pair| format!(" --interface {}", pair.join(",")));
        let cards: String = cards.collect();
        Ok(Lab {
            folder: self.out.clone(),
            scale,
            rounds: self.rounds,
            resumes: self.resume,
            server_cpus,
            client_cpus,
            is_quiet: self.quiet,
            cards: self.interface.clone(),
            flags: format!("{flag}{rounds}{pinned}{folder}{cards}"),
        })
    }
}

fn listed(experiments: &[Experiment]) -> String {
    let width = experiments.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Experiment { name, title, .. } in experiments {
        let _ = writeln!(out, "{name:width$}  {title}");
    }
    out
}

/// The text of `lab show`.
fn shown(experiment: &Experiment) -> String {
    let mut out = format!("{}: {}\n\n", experiment.name, experiment.title);
    let source = format!("{}, {}", experiment.source.title(), experiment.place);
    out += &wrapped("source:  ", &sentence(&source));
    out += &wrapped("method:  ", &experiment.did);
    for found in &experiment.found {
        out += &wrapped("found:   ", found);
    }
    if !experiment.differs.is_empty() {
        out += &wrapped("differs: ", &experiment.differs);
    }
    for server in &experiment.servers {
        let program = format!("{:?} {}", server.program, server.flags).to_lowercase();
        out += &wrapped("server:  ", &format!("{} ({})", server.name, program.trim()));
    }
    for axis in &experiment.axes {
        let labels: Vec<String> = axis.points.iter().map(|point| point.at.to_string()).collect();
        out += &wrapped("axis:    ", &format!("{}: {}", axis.name, labels.join(", ")));
    }
    out += &wrapped("load:    ", &experiment.drive.flags);
    for claim in &experiment.claims {
        out += &wrapped("claim:   ", &claim.says);
    }
    out
}
