//! The console of the tool, as a program.
use super::{tool::Tool, wait::in_time};
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

pub(crate) struct Console {
    pub(crate) url: String,
    child: Child,
}

impl Console {
    /// Starts the console of a database on a free port.
    pub(crate) async fn start(tool: &Tool, arguments: &[&str]) -> Self {
        let mut command = tool.command(&[&["console", "--listen", "127.0.0.1:0"], arguments].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = in_time(async {
            let mut said = String::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, rest)) = line.split_once("the console is at ") {
                    return rest.split(',').next().unwrap().to_owned();
                }
                said += &line;
            }
            panic!("the console did not start: {said}")
        });
        let url = url.await;
        // What it says later must not fill the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url, child }
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) {
        let pid = self.child.id().unwrap().to_string();
        let kill = tokio::process::Command::new("kill").args(["-TERM", &pid]).status().await.unwrap();
        assert!(kill.success());
        assert!(in_time(self.child.wait()).await.unwrap().success());
    }
}
