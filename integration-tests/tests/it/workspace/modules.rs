//! Modules import downwards: no module of a crate imports itself, be it through others.
use super::root;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Item, UseTree, Visibility,
    visit_mut::{self, VisitMut},
};

/// A name that a module brings into its scope.
struct Import {
    name: String,
    /// What it names, from the scope of the module.
    path: Vec<String>,
    is_public: bool,
}

/// A module with all that its file says.
#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// Modules all of whose names are imported.
    globs: Vec<Vec<String>>,
    /// Paths in code.
    paths: Vec<Vec<String>>,
}

/// The modules of a crate, by their paths: the root is empty.
#[derive(Default)]
struct Tree(BTreeMap<Vec<String>, Module>);

impl Tree {
    fn of(root_file: &Path) -> Self {
        let mut tree = Self::default();
        tree.read(Vec::new(), root_file, root_file.parent().unwrap());
        tree
    }

    /// `folder`: where the files of child modules are.
    fn read(&mut self, path: Vec<String>, file: &Path, folder: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.add(path, parsed.items, folder);
    }

    fn add(&mut self, path: Vec<String>, items: Vec<Item>, folder: &Path) {
        let mut module = Module::default();
        for mut item in items {
            if is_test(&item) {
                continue;
            }
            match &item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let below = path.iter().cloned().chain([name.clone()]).collect();
                    let own = folder.join(&name);
                    match &child.content {
                        Some((_, items)) => self.add(below, items.clone(), &own),
                        None => self.read(below, &folder.join(format!("{name}.rs")), &own),
                    }
                    module.children.insert(name);
                }
                Item::Use(item) => {
                    let is_public = !matches!(item.vis, Visibility::Inherited);
                    module.import(&item.tree, Vec::new(), is_public);
                }
                _ => {
                    module.items.extend(name_of(&item));
                    Paths(&mut module.paths).visit_item_mut(&mut item);
                }
            }
        }
        self.0.insert(path, module);
    }

    /// The module in which the item of a path is written, or which the path names.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        if depth > 20 {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut at: Vec<String> = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.to_vec(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            _ => {
                rest = path;
                from.to_vec()
            }
        };
        let is_relative = rest.len() == path.len();
        for (n, name) in rest.iter().enumerate() {
            let module = self.0.get(&at)?;
            if name == "super" {
                at.pop()?;
            } else if module.children.contains(name) {
                at.push(name.clone());
            } else if module.items.contains(name) {
                return Some(at);
            } else if let Some(import) = module.imports.iter().find(|import| import.name == *name) {
                let path: Vec<_> = import.path.iter().chain(&rest[n + 1..]).cloned().collect();
                return self.resolve(&at, &path, depth + 1);
            } else {
                let globs = module.globs.iter().filter_map(|glob| self.resolve(&at, glob, depth + 1));
                let found = globs.into_iter().find(|found| self.0[found].items.contains(name));
                return found.or_else(|| (n > 0 || !is_relative).then_some(at));
            }
        }
        Some(at)
    }

    /// Which modules each module imports. Re-exports of its own children do not count.
    fn edges(&self) -> BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> {
        let mut edges = BTreeMap::new();
        for (path, module) in &self.0 {
            let mut targets = BTreeSet::new();
            for import in &module.imports {
                let target = self.resolve(path, &import.path, 0);
                targets.extend(target.filter(|target| !(import.is_public && target.starts_with(path))));
            }
            for used in module.globs.iter().chain(module.paths.iter().filter(|path| path.len() > 1)) {
                targets.extend(self.resolve(path, used, 0));
            }
            targets.remove(path);
            edges.insert(path, targets);
        }
        edges
    }

    /// Modules that import each other, be it through others: each group once.
    fn circles(&self) -> Vec<Vec<String>> {
        let edges = self.edges();
        let reaches = |from: &Vec<String>| {
            let (mut seen, mut open) = (BTreeSet::new(), Vec::from([from.clone()]));
            while let Some(at) = open.pop() {
                for next in edges.get(&at).into_iter().flatten() {
                    if seen.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            seen
        };
        let all: BTreeMap<_, _> = edges.keys().map(|path| ((*path).clone(), reaches(path))).collect();
        let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
        for (path, reached) in all.iter().filter(|(path, reached)| reached.contains(*path)) {
            let together = reached.iter().filter(|other| all[*other].contains(path));
            circles.insert(together.map(|path| path.join("::")).collect());
        }
        circles.into_iter().collect()
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree, mut path: Vec<String>, is_public: bool) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.import(&tree.tree, path, is_public);
            }
            UseTree::Name(tree) if tree.ident == "self" => {
                let name = path.last().cloned().unwrap_or_default();
                self.imports.push(Import { name, path, is_public });
            }
            UseTree::Name(tree) => {
                let name = tree.ident.to_string();
                path.push(name.clone());
                self.imports.push(Import { name, path, is_public });
            }
            UseTree::Rename(tree) => {
                if tree.ident != "self" {
                    path.push(tree.ident.to_string());
                }
                self.imports.push(Import { name: tree.rename.to_string(), path, is_public });
            }
            UseTree::Glob(_) => self.globs.push(path),
            UseTree::Group(tree) => {
                for tree in &tree.items {
                    self.import(tree, path.clone(), is_public);
                }
            }
        }
    }
}

/// Collects the paths of code, those in the input of macros included.
struct Paths<'a>(&'a mut Vec<Vec<String>>);

impl VisitMut for Paths<'_> {
    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        if path.leading_colon.is_none() {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit_mut::visit_path_mut(self, path);
    }

    fn visit_macro_mut(&mut self, call: &mut syn::Macro) {
        self.visit_path_mut(&mut call.path);
        let text = call.tokens.to_string();
        for (at, _) in text.match_indices("crate ::") {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let segments = text[at..].split("::").map(str::trim);
            let mut path = Vec::new();
            for segment in segments {
                let end = segment.find(|c| !is_name(c)).unwrap_or(segment.len());
                path.push(segment[..end].to_owned());
                if end < segment.len() || path.last().is_some_and(String::is_empty) {
                    break;
                }
            }
            path.retain(|segment| !segment.is_empty());
            self.0.push(path);
        }
    }
}

pub(super) fn is_test(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        _ => return false,
    };
    let is_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test")
    };
    attributes.iter().any(is_test)
}

fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// The root files of all our libraries and programs.
fn roots() -> Vec<PathBuf> {
    let folders = ["crates", "examples"].map(|folder| root().join(folder));
    let members = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let members = members.map(|entry| entry.unwrap().path());
    let members = members.chain(["bench", "xtask"].map(|folder| root().join(folder)));
    let files = members.flat_map(|member| ["lib.rs", "main.rs"].map(|file| member.join("src").join(file)));
    files.filter(|file| file.is_file()).collect()
}

#[test]
fn no_modules_import_each_other() {
    let mut circles = Vec::new();
    for file in roots() {
        let found = Tree::of(&file).circles();
        circles.extend(found.into_iter().map(|circle| format!("{}: {}", file.display(), circle.join(", "))));
    }
    assert!(circles.is_empty(), "modules that import each other:\n{}", circles.join("\n"));
}

/// The files of a small crate.
fn small_crate(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

#[test]
fn a_circle_of_modules_is_found() {
    let lib = "mod a; mod b; mod c; pub use c::C;";
    let a = "use crate::b::B; pub struct A(B);";
    for (b, c, circles) in [
        // Through a third module, by a re-export, by a path in code, by one in a macro.
        ("use crate::C; pub struct B(C);", "use crate::a::A; pub struct C;", 1),
        ("pub struct B; fn f() -> super::a::A { todo() }", "pub struct C;", 1),
        ("pub struct B; fn f() { print!(\"{}\", crate::a::A) }", "pub struct C;", 1),
        ("use crate::C; pub struct B(C);", "pub struct C;", 0),
        // Tests import what they like.
        ("pub struct B; #[cfg(test)] mod tests { use crate::a::A; }", "pub struct C;", 0),
    ] {
        let files = [("lib.rs", lib), ("a.rs", a), ("b.rs", b), ("c.rs", c)];
        let folder = small_crate(&files);
        assert_eq!(Tree::of(&folder.path().join("lib.rs")).circles().len(), circles, "{b}\n{c}");
    }
}

#[test]
fn a_parent_may_show_the_names_of_its_children_and_not_use_them() {
    let child = "use super::Parent; pub struct Child(Parent);";
    for (parent, circles) in [
        ("mod child; pub use child::Child; pub struct Parent;", 0),
        ("mod child; use child::Child; pub struct Parent; fn f(_: Child) {}", 1),
    ] {
        let folder = small_crate(&[("lib.rs", "mod p;"), ("p.rs", parent), ("p/child.rs", child)]);
        assert_eq!(Tree::of(&folder.path().join("lib.rs")).circles().len(), circles, "{parent}");
    }
}
