//! Finds circles of imports: files of a crate that reach each other through paths in their code.
//!
//! Where: between the files of the tree and the test that limits the size of a circle.
//! Invariant: a name that a module only passes on (`use x::Y`) counts as an import from `x`.
//! Source: R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1(2), 1972.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::source::{Kind, Source};

/// Most files of a crate that may reach each other.
const CIRCLE_FILES_MAX: usize = 4;

/// A path of module names below the crate's root; the root itself is empty.
type Module = Vec<String>;

/// Modules of one crate, each with the names that it takes from elsewhere.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, String>,
    passed_on: BTreeMap<Module, BTreeMap<String, Module>>,
}

/// Paths in one file, each with the place of its first name.
struct Paths {
    module: Module,
    paths: Vec<Vec<String>>,
    uses: Vec<(String, Vec<String>)>,
}

/// Returns a message for each circle of the crate in `folder` that has too many files.
pub(crate) fn circles(tree: &[Source], folder: &str) -> Vec<String> {
    let edges = imports(tree, folder);
    let large = knots(&edges).into_iter().filter(|knot| knot.len() > CIRCLE_FILES_MAX);
    large.map(|knot| told(&knot, &edges)).collect()
}

fn told(knot: &BTreeSet<String>, edges: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut text = format!("{} files import each other in a circle:", knot.len());
    for file in knot {
        let within: Vec<&str> = edges[file].intersection(knot).map(String::as_str).collect();
        text += &format!("\n  {file} -> {}", within.join(", "));
    }
    text
}

/// The files that each file of the crate imports from.
fn imports(tree: &[Source], folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let prefix = format!("{folder}/src/");
    let rust = tree.iter().filter(|file| file.kind == Kind::Rust);
    let shipped = rust.filter(|file| file.path.starts_with(&prefix) && !file.is_test());
    let mut known = Crate::default();
    let mut all = Vec::new();
    // A program imports from its library as from another crate.
    for file in shipped.filter(|file| !file.path.ends_with("src/main.rs")) {
        let module = module(&file.path[prefix.len()..]);
        let mut paths = Paths { module: module.clone(), paths: Vec::new(), uses: Vec::new() };
        let parsed = syn::parse_file(&file.text);
        paths.visit_file(&parsed.unwrap_or_else(|error| panic!("{}: {error}", file.path)));
        known.files.insert(module, file.path.clone());
        all.push(paths);
    }
    for paths in &all {
        let passed_on = known.passed_on.entry(paths.module.clone()).or_default();
        let uses = paths.uses.iter().filter_map(|(name, path)| {
            Some((name.clone(), absolute(&paths.module, path, &known.files)?))
        });
        passed_on.extend(uses);
    }
    let targets = |paths: &Paths| {
        let uses = paths.uses.iter().map(|(_, path)| path);
        let used = uses.chain(&paths.paths).filter_map(|path| known.file(&paths.module, path));
        used.filter(|file| *file != known.files[&paths.module]).collect()
    };
    all.iter().map(|paths| (known.files[&paths.module].clone(), targets(paths))).collect()
}

fn module(path: &str) -> Module {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let names = path.split('/').map(str::to_owned);
    names.filter(|name| name != "lib").collect()
}

/// Returns the path from the crate's root, or `None` if the path leads out of the crate.
fn absolute(at: &Module, path: &[String], files: &BTreeMap<Module, String>) -> Option<Module> {
    let up = path.iter().take_while(|name| *name == "super").count();
    let first = path.first()?.as_str();
    let (start, rest) = match first {
        "crate" => (&[][..], &path[1..]),
        "self" => (&at[..], &path[1..]),
        "super" => (&at[..at.len().checked_sub(up)?], &path[up..]),
        _ => (&at[..], path),
    };
    let absolute: Module = start.iter().chain(rest).cloned().collect();
    let is_child = || absolute.get(..=at.len()).is_some_and(|child| files.contains_key(child));
    (["crate", "self", "super"].contains(&first) || is_child()).then_some(absolute)
}

impl Crate {
    /// Returns the file that defines the name at the end of the path.
    fn file(&self, at: &Module, path: &[String]) -> Option<String> {
        // A path may also begin with a module's name that the file itself has imported.
        let imported = || {
            let module = self.passed_on.get(at)?.get(path.first()?)?;
            Some(module.iter().chain(&path[1..]).cloned().collect())
        };
        let mut absolute = absolute(at, path, &self.files).or_else(imported)?;
        // A name is passed on a few times at most; a larger number is a circle of `use`.
        for _ in 0..8 {
            let depth = (0..=absolute.len()).rev();
            let depth =
                depth.into_iter().find(|&depth| self.files.contains_key(&absolute[..depth]))?;
            let (module, rest) = absolute.split_at(depth);
            let further = rest.first().and_then(|name| self.passed_on.get(module)?.get(name));
            match further {
                Some(further) if further[..] != absolute[..=depth] => {
                    absolute = further.iter().chain(&rest[1..]).cloned().collect();
                }
                _ => return self.files.get(module).cloned(),
            }
        }
        None
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        gather(&item.tree, &mut Vec::new(), &mut self.uses);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.paths.push(path.segments.iter().map(|one| one.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

fn gather(tree: &syn::UseTree, before: &mut Vec<String>, uses: &mut Vec<(String, Vec<String>)>) {
    let name = |ident: &syn::Ident| ident.to_string();
    match tree {
        syn::UseTree::Path(path) => {
            before.push(name(&path.ident));
            gather(&path.tree, before, uses);
            before.pop();
        }
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|tree| gather(tree, before, uses));
        }
        syn::UseTree::Glob(_) => uses.push(("*".to_owned(), before.clone())),
        syn::UseTree::Name(one) if one.ident == "self" => {
            uses.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        syn::UseTree::Name(one) => {
            uses.push((name(&one.ident), [&before[..], &[name(&one.ident)]].concat()));
        }
        syn::UseTree::Rename(one) => {
            uses.push((name(&one.rename), [&before[..], &[name(&one.ident)]].concat()));
        }
    }
}

/// True for an item under `#[cfg(test)]`, `#[cfg(loom)]`, `#[cfg(shuttle)]` or `#[cfg(plant)]`.
fn is_for_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        attribute.parse_args::<syn::Meta>().is_ok_and(|under| demands_tests(&under))
    })
}

/// True if a configuration is one for tests: `test`, or `all(test, …)`, for example.
fn demands_tests(under: &syn::Meta) -> bool {
    let parsed = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
    match under {
        syn::Meta::Path(path) => {
            ["test", "loom", "shuttle", "plant"].iter().any(|cfg| path.is_ident(cfg))
        }
        syn::Meta::List(list) if list.path.is_ident("all") => {
            list.parse_args_with(parsed).is_ok_and(|all| all.iter().any(demands_tests))
        }
        _ => false,
    }
}

/// Files that reach each other, for each group of two and more.
fn knots(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|file| (file, reach(file, edges))).collect();
    let knot = |file: &String| -> BTreeSet<String> {
        let others = reached[file].iter().filter(|other| reached[**other].contains(file));
        others.map(|&other| other.clone()).collect()
    };
    let all: BTreeSet<BTreeSet<String>> = edges.keys().map(knot).collect();
    all.into_iter().filter(|knot| knot.len() > 1).collect()
}

fn reach<'a>(file: &String, edges: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = edges[file].iter().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(&edges[file]);
        }
    }
    reached
}
