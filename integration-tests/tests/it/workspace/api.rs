//! The size of what an application sees first: the methods of a store, and the names of the facade.
use super::{files::below, root};
use std::{collections::BTreeSet, fs};
use syn::{ImplItem, Item, Type, UseTree, Visibility};

/// Public methods that a store may have, those of traits included.
const METHODS_MAX: usize = 30;
/// Names that the root of the facade may have.
const NAMES_MAX: usize = 50;

fn items(file: &std::path::Path) -> Vec<Item> {
    syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap().items
}

fn is_hidden(attributes: &[syn::Attribute]) -> bool {
    let is_hidden = |attribute: &syn::Attribute| {
        attribute.path().is_ident("doc")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "hidden")
    };
    attributes.iter().any(is_hidden)
}

/// Methods in blocks `impl … for NAME` and `impl NAME` among these items.
fn methods_of(items: &[Item], name: &str) -> Vec<String> {
    let mut methods = Vec::new();
    for item in items {
        let Item::Impl(block) = item else { continue };
        let Type::Path(of) = &*block.self_ty else { continue };
        if of.path.segments.last().is_none_or(|segment| segment.ident != name) {
            continue;
        }
        for item in &block.items {
            let ImplItem::Fn(method) = item else { continue };
            let is_public = block.trait_.is_some() || matches!(method.vis, Visibility::Public(_));
            if is_public && !is_hidden(&method.attrs) {
                methods.push(method.sig.ident.to_string());
            }
        }
    }
    methods
}

fn names_of(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(tree) => names_of(&tree.tree, names),
        UseTree::Name(tree) => drop(names.insert(tree.ident.to_string())),
        UseTree::Rename(tree) => drop(names.insert(tree.rename.to_string())),
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| names_of(tree, names)),
        UseTree::Glob(_) => panic!("the root of the facade names what it exports"),
    }
}

/// The names that these items export.
fn exports(items: &[Item]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in items {
        match item {
            Item::Use(item) if !is_hidden(&item.attrs) => names_of(&item.tree, &mut names),
            Item::Mod(item) if !is_hidden(&item.attrs) => drop(names.insert(item.ident.to_string())),
            _ => {}
        }
    }
    names
}

#[test]
fn a_store_has_few_methods() {
    let files = below(&root().join("crates")).filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let methods = Vec::from_iter(files.flat_map(|file| methods_of(&items(&file), "Store")));
    assert!(methods.contains(&"begin".to_owned()), "the methods are found: {methods:?}");
    assert!(methods.len() <= METHODS_MAX, "{} methods: {methods:?}", methods.len());
}

#[test]
fn the_facade_has_few_names_at_its_root() {
    let names = exports(&items(&root().join("crates/twinbox/src/lib.rs")));
    assert!(names.contains("Store") && names.contains("ops"), "the names are found: {names:?}");
    assert!(names.len() <= NAMES_MAX, "{} names: {names:?}", names.len());
}

#[test]
fn methods_and_names_are_counted() {
    let items = syn::parse_file(
        "impl<DB> Store<DB> { pub fn a() {} fn b() {} #[doc(hidden)] pub fn c() {} }
         impl Clone for Store<u8> { fn clone() {} }
         impl Other { pub fn d() {} }
         pub use x::{A, b::{self as c, D}};
         #[doc(hidden)] pub mod hidden { pub use y::E; }
         pub mod shown { pub use y::F; }",
    )
    .unwrap()
    .items;
    assert_eq!(methods_of(&items, "Store"), ["a", "clone"]);
    assert_eq!(Vec::from_iter(exports(&items)), ["A", "D", "c", "shown"]);
}
