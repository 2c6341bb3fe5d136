//! The operator tool: the tests act through its program only.
mod book;
mod changes;
mod check;
mod confirmation;
mod doctor;
mod dry;
mod files;
mod grants;
mod injection;
mod killed;
mod letters;
mod power;
mod replay;
mod runbook;
mod selected;
mod shop;
