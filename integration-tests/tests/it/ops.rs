//! The operator tool: the tests act through its program only.
mod book;
mod changes;
mod check;
mod confirmation;
mod dead_letters;
mod doctor;
mod dry;
mod effects;
mod files;
mod grants;
mod injection;
mod killed;
mod power;
mod replay;
mod runbook;
mod selected;
mod shop;
