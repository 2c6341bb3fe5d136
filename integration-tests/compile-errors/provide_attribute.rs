use twinbox::Provide;

struct App;

#[derive(Provide)]
enum NoStruct {
    App(App),
}

#[derive(Provide)]
#[provide(skip)]
struct Misplaced {
    app: App,
}

#[derive(Provide)]
struct Misspelt {
    #[provide(skipp)]
    app: App,
    #[provide(rename = "name")]
    name: String,
}

#[derive(Provide)]
struct Bare {
    #[provide]
    app: App,
}

#[derive(Provide)]
struct OneTypeTwice {
    name: String,
    app: App,
    region: String,
}

fn main() {}
